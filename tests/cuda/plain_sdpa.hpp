// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A third party's attention of one rectangle, as its equation says, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <seqpar/cuda/by_rectangles.hpp>

namespace seqpar::test {

template <class T>
void attend_plainly(const cuda::sdpa_call<T>& c) {
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  std::vector<double> s(static_cast<std::size_t>(c.k.tokens())), acc(static_cast<std::size_t>(c.v.dim()));
  for (index_t b = 0; b < c.q.batch(); ++b)
    for (index_t h = 0; h < c.q.heads(); ++h)
      for (index_t i = 0; i < c.q.tokens(); ++i) {
        const index_t kv = h / (c.q.heads() / c.k.heads());
        for (index_t j = 0; j < c.k.tokens(); ++j) {
          const bool seen =
              (c.left == rectangle::open || i - j <= c.left) && (c.right == rectangle::open || j - i <= c.right);
          double dot = 0;
          for (index_t d = 0; d < c.q.dim(); ++d)
            dot += static_cast<double>(c.q.row(b, i, h)[d]) * static_cast<double>(c.k.row(b, j, kv)[d]);
          s[static_cast<std::size_t>(j)] = seen ? static_cast<double>(c.scale) * dot : nothing;
        }
        const double max = *std::max_element(s.begin(), s.end());
        double sum = 0;
        std::fill(acc.begin(), acc.end(), 0.0);
        for (index_t j = 0; j < c.k.tokens(); ++j) {
          const double p = std::exp(s[static_cast<std::size_t>(j)] - max);
          if (p == 0) continue;
          sum += p;
          for (std::size_t d = 0; d < acc.size(); ++d) acc[d] += p * static_cast<double>(c.v.row(b, j, kv)[d]);
        }
        for (std::size_t d = 0; d < acc.size(); ++d) c.out.row(b, i, h)[d] = T(static_cast<float>(acc[d] / sum));
        c.lse[(b * c.q.heads() + h) * c.q.tokens() + i] = static_cast<float>(max + std::log(sum));
      }
}

/// The calls that a third party was prepared for: shapes, strides and bands, as cuDNN's plans have them.
class prepared_calls {
 public:
  template <class T>
  void add(const cuda::sdpa_call<T>& c) {
    keys_.insert(key_of(c));
  }
  template <class T>
  bool has(const cuda::sdpa_call<T>& c) const {
    return keys_.count(key_of(c)) > 0;
  }

 private:
  template <class T>
  static std::vector<index_t> key_of(const cuda::sdpa_call<T>& c) {
    std::vector<index_t> key{c.left, c.right};
    const auto append = [&](const auto& v) {
      key.insert(key.end(), v.shape.begin(), v.shape.end());
      key.insert(key.end(), v.stride.begin(), v.stride.end());
    };
    append(c.q);
    append(c.k);
    append(c.v);
    append(c.out);
    return key;
  }
  std::set<std::vector<index_t>> keys_;
};

}  // namespace seqpar::test
