// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One of several masks, chosen while the program runs: so that one plan is compiled for all of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <seqpar/cost/steady.hpp>

namespace demo {

using seqpar::index_t;
using seqpar::interval;

struct mask_choice {
  using inside_documents = seqpar::within<seqpar::causal>;
  std::variant<seqpar::full, seqpar::causal, seqpar::window, seqpar::block_causal, seqpar::teacher_forcing,
               inside_documents>
      one;

  template <class F>
  auto ask(F&& f) const {
    return std::visit(f, one);
  }
  bool allows(index_t q, index_t k) const {
    return ask([&](const auto& m) { return m.allows(q, k); });
  }
  seqpar::interval_pair key_intervals(index_t q) const {
    return ask([&](const auto& m) { return m.key_intervals(q); });
  }
  seqpar::cover covers(interval q, interval k) const {
    return ask([&](const auto& m) { return seqpar::covers(m, q, k); });
  }
  template <class F>
  void reach(interval q, F&& f) const {
    ask([&](const auto& m) { m.reach(q, f); });
  }
  index_t steady_until(index_t q) const {
    return ask([&](const auto& m) { return seqpar::steady_until(m, q); });
  }
  mask_choice bound(index_t q_tokens, index_t k_tokens) const {
    return ask([&](const auto& m) { return mask_choice{seqpar::bound(m, q_tokens, k_tokens)}; });
  }
  const char* problem() const {
    return ask([](const auto& m) { return seqpar::problem_of(m); });
  }
  std::string misfit(seqpar::padded_length q, seqpar::padded_length k) const {
    return ask([&](const auto& m) { return seqpar::misfit_of(m, q, k); });
  }
};

/// So many tokens in documents of lognormal lengths with this median; the same ones every time.
inline std::vector<index_t> some_documents(index_t tokens, double median) {
  std::uint64_t state = 1;
  const auto uniform = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state >> 11) + .5) / 9007199254740992.;
  };
  std::vector<index_t> bounds(1, 0);
  while (bounds.back() < tokens) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
    const double length = median * std::exp(1.2 * normal);  // may be more than an integer holds
    const index_t most = std::max<index_t>(4, tokens / 4);
    const index_t whole =
        length < static_cast<double>(most) ? std::max<index_t>(4, static_cast<index_t>(length)) : most;
    bounds.push_back(bounds.back() + std::min(tokens - bounds.back(), whole));
  }
  return bounds;
}

}  // namespace demo
