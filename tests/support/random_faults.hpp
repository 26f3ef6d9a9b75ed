// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank comes to grief at a random step of forward or backward, in a random way: nobody waits for it longer than the
// deadline, everybody is told, and where ranks are left they go on as if nothing had been. For transports of threads.
#pragma once

#include <optional>
#include <random>

#include <tests/support/small_rank.hpp>

namespace seqpar::test {
using namespace std::chrono_literals;

enum class grief { throws, stops, shortens, leaves, plans_otherwise };

struct plan_of_grief {
  grief kind = grief::throws;
  int launches = -1, kernels = -1;                     ///< how many go well; −1: all
  std::optional<std::chrono::nanoseconds> deadline{};  ///< of waits
  bool left = false;
};

/// Forwards to thread ranks until the time has come.
template <class Inner>
class troubled {
 public:
  class group_type {
   public:
    void reserve(index_t s, index_t r) { inner_.reserve(s, r); }
    void clear() noexcept { inner_.clear(); }
    void label(const message_label& l) noexcept { inner_.label(l); }
    void send(block b, int peer) noexcept {
      if (plan_->kind == grief::shortens && plan_->launches == 0 && b.bytes() > 0) --b.column_bytes;
      inner_.send(b, peer);
    }
    void recv(const block& b, int peer) noexcept { inner_.recv(b, peer); }

   private:
    friend class troubled;
    group_type(typename Inner::group_type inner, plan_of_grief* plan) : inner_(std::move(inner)), plan_(plan) {}
    typename Inner::group_type inner_;
    plan_of_grief* plan_;
  };
  static constexpr transport_access access = Inner::access;

  troubled(const Inner& inner, plan_of_grief& plan) : inner_(inner), plan_(&plan) {}
  int rank() const noexcept { return inner_.rank(); }
  int size() const noexcept { return inner_.size(); }
  group_type group() const { return {inner_.group(), plan_}; }
  template <class Exec>
  status launch(group_type& g, const Exec& e) const noexcept {
    if (plan_->launches > 0)
      --plan_->launches;
    else if (plan_->launches == 0 && plan_->kind == grief::stops) {
      while (inner_.check().ok()) std::this_thread::sleep_for(1ms);
      return inner_.check();
    } else if (plan_->launches == 0 && plan_->kind == grief::leaves) {
      inner_.leave();
      plan_->left = true;
      return {errc::transport_failed, "test: this rank has left"};
    }
    return inner_.launch(g.inner_, e);
  }
  template <class Exec>
  status wait(group_type& g, const Exec& e) const noexcept {
    if (plan_->left) {  // nobody hears of it, but what is under way is dropped
      g.inner_.clear();
      return {errc::transport_failed, "test: this rank has left"};
    }
    return plan_->deadline ? inner_.wait(g.inner_, e, *plan_->deadline) : inner_.wait(g.inner_, e);
  }
  template <class Exec>
  status wait(group_type& g, const Exec& e, std::chrono::nanoseconds d) const noexcept {
    return inner_.wait(g.inner_, e, d);
  }
  status check() const noexcept { return inner_.check(); }
  /// Who has left says nothing.
  void abort(const status& s) const noexcept {
    if (plan_->kind != grief::leaves) inner_.abort(s);
  }

 private:
  Inner inner_;
  plan_of_grief* plan_;
};

template <class Kernel>
struct troubled_kernel : Kernel {
  plan_of_grief* plan = nullptr;
  template <class Call, class Mask, class... Where>
  void forward(const Call& call, const Mask& mask, const Where&... where) const {
    step();
    Kernel::forward(call, mask, where...);
  }
  template <class Call, class Mask, class... Where>
  void backward(const Call& call, const Mask& mask, const Where&... where) const {
    step();
    Kernel::backward(call, mask, where...);
  }

 private:
  void step() const {
    if (!plan || plan->kind != grief::throws || plan->kernels < 0) return;
    if (plan->kernels-- == 0) throw std::runtime_error("planted");
  }
};

inline bool told(const status& s) {
  switch (s.code()) {
    case errc::peer_failed:
    case errc::timed_out:
    case errc::deadlock:
    case errc::size_mismatch:
    case errc::ranks_disagree:
      return true;
    default:
      return false;
  }
}

inline constexpr const char* late = "waited longer than the deadline and a second";

/// One point: what is wrong, or "". `on` makes a rank's transport of its thread's.
template <class Kernel, class Site, class On>
std::string fault_at(std::uint64_t seed, On&& on) {
  constexpr int ranks = 4;
  constexpr auto deadline = 100ms;
  std::mt19937_64 draw(seed);
  const auto kind = static_cast<grief>(draw() % 5);
  const int culprit = static_cast<int>(draw() % ranks);
  const mesh_shape shape = std::array{mesh_shape{4, 1}, mesh_shape{2, 2}, mesh_shape{1, 4}}[draw() % 3];
  attention_options options{.passes = forward_backward,
                            .schedule = draw() % 2 ? schedule::direct : schedule::pass_along};
  plan_of_grief griefs[ranks];
  const int step = static_cast<int>(draw() % 4);
  std::string wrong[ranks];
  std::vector<float> first[ranks], again[ranks];
  threads::options world{.ranks = ranks};
  if (draw() % 2) world.adversary = seed;
  run_ranks(world, [&](threads::transport t) {
    const int me = t.rank();
    const auto say = [&](const std::string& text) { wrong[me] = "rank " + std::to_string(me) + " " + text; };
    plan_of_grief& mine = griefs[me];
    using engine_type = troubled<decltype(on(t))>;
    using small = small_rank<engine_type, troubled_kernel<Kernel>, Site>;
    const engine_type engine(on(t), mine);
    troubled_kernel<Kernel> kernel;
    kernel.plan = &mine;
    if (kind == grief::plans_otherwise) {
      attention_options other = options;
      if (me == culprit) other.scale = 0.5f;
      try {
        small rank(engine, shape, other, kernel);
        say("did not notice another plan");
      } catch (const error& e) {
        if (e.code() != errc::ranks_disagree) say(std::string("was told ") + e.what());
      }
    } else {
      small rank(engine, shape, options, kernel);
      check(rank.run());
      rank.site.settle();
      first[me] = rank.results();
      check(t.recover());  // a barrier: nobody fails while others are in their first run
      mine.deadline = deadline;
      if (me == culprit) {
        mine.kind = kind;
        mine.launches = mine.kernels = step;
      }
      const auto begin = std::chrono::steady_clock::now();
      status s;
      for (int run = 0; run < 3 && s.ok(); ++run) s = rank.run();
      // Steps are counted over three runs: the time comes on every mesh.
      const bool own_fault = me == culprit && (kind == grief::throws || kind == grief::leaves);
      if (!own_fault && !told(s)) say("was told " + s.message());
      if (me != culprit && s.ok()) say("knew nothing");
      if (me == culprit && kind == grief::leaves) return;
      if (rank.run().ok()) say("made a later call that knew nothing");
      if (std::chrono::steady_clock::now() - begin > deadline + 1s) say(late);
    }
    mine = {};
    if (kind == grief::leaves) {
      if (t.recover().ok()) say("recovered without the rank that left");
      return;
    }
    check(t.recover());
    small rank(engine, shape, options, kernel);
    check(rank.run());
    rank.site.settle();
    again[me] = rank.results();
  });
  for (int r = 0; r < ranks; ++r) {
    if (!wrong[r].empty()) return wrong[r];
    if (!first[r].empty() && !again[r].empty() && first[r] != again[r]) return "other results afterwards";
  }
  return "";
}

/// Points first … last − 1: the first fault, or "".
template <class Kernel, class Site, class On>
std::string fault_among(std::uint64_t first, std::uint64_t last, On&& on) {
  for (std::uint64_t seed = first; seed < last; ++seed) {
    std::string fault = fault_at<Kernel, Site>(seed, on);
    // Another program may have had the machine for so long; it will not have it again and again.
    for (int again = 0; again < 3 && fault.find(late) != std::string::npos; ++again)
      fault = fault_at<Kernel, Site>(seed, on);
    if (!fault.empty()) return "point " + std::to_string(seed) + ": " + fault;
  }
  return "";
}

}  // namespace seqpar::test
