// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any layout and any mask behind one type each, so that a sweep over all of them compiles one plan.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <seqpar/layout/concept.hpp>
#include <seqpar/mask/concept.hpp>

namespace seqpar::test {

class any_layout {
 public:
  template <class L>
  requires(!std::same_as<L, any_layout>) && sequence_layout<L> explicit any_layout(const L& layout,
                                                                                   std::string name = "")
      : self_(std::make_shared<model<L>>(layout)),
  name_(std::move(name)) {}
  index_t token_count() const { return self_->token_count(); }
  int rank_count() const { return self_->rank_count(); }
  index_t count_of(int rank) const { return self_->count_of(rank); }
  index_t global_of(int rank, index_t local) const { return self_->global_of(rank, local); }
  place place_of(index_t global) const { return self_->place_of(global); }
  template <class F>
  void for_each_run(int rank, F&& f) const {
    self_->runs(rank, [&](run r) { f(r); });
  }
  flaw problem() const { return self_->problem(); }
  const std::string& name() const { return name_; }
  friend bool operator==(const any_layout& a, const any_layout& b) { return a.self_ == b.self_; }

 private:
  struct base {
    virtual ~base() = default;
    virtual index_t token_count() const = 0;
    virtual int rank_count() const = 0;
    virtual index_t count_of(int) const = 0;
    virtual index_t global_of(int, index_t) const = 0;
    virtual place place_of(index_t) const = 0;
    virtual void runs(int, const std::function<void(run)>&) const = 0;
    virtual flaw problem() const = 0;
  };
  template <class L>
  struct model final : base {
    explicit model(const L& l) : layout(l) {}
    index_t token_count() const override { return layout.token_count(); }
    int rank_count() const override { return layout.rank_count(); }
    index_t count_of(int r) const override { return layout.count_of(r); }
    index_t global_of(int r, index_t i) const override { return layout.global_of(r, i); }
    place place_of(index_t g) const override { return layout.place_of(g); }
    void runs(int r, const std::function<void(run)>& f) const override { seqpar::for_each_run(layout, r, f); }
    flaw problem() const override { return problem_of(layout); }
    L layout;
  };
  std::shared_ptr<const base> self_;
  std::string name_;
};

/// Is a mask's reach exactly what its queries see, or may it hold more (when a bare functor takes part)?
enum class reaching { exact, superset };

/// Offers try_key_intervals, so that a plan uses intervals where the mask inside has them and asks it otherwise.
class any_mask {
 public:
  template <class M>
  requires(!std::same_as<M, any_mask>) && attention_mask<M> explicit any_mask(const M& mask, std::string name = "",
                                                                              reaching reach = reaching::exact)
      : self_(std::make_shared<model<M>>(mask)),
  name_(std::move(name)), reaching_(reach) {}
  bool allows(index_t q, index_t k) const { return self_->allows(q, k); }
  std::optional<interval_pair> try_key_intervals(index_t q) const { return self_->intervals(q); }
  cover covers(interval q, interval k) const { return self_->covers(q, k); }
  template <class F>
  void reach(interval q, F&& f) const {
    self_->reach(q, [&](interval k) { f(k); });
  }
  any_mask bound(index_t q_tokens, index_t k_tokens) const {
    any_mask b = self_->bound(q_tokens, k_tokens, name_);
    b.reaching_ = reaching_;
    return b;
  }
  flaw problem() const { return self_->problem(); }
  /// Does it say which keys must travel? A bare functor does not: then all of them do.
  bool knows_reach() const { return self_->knows_reach(); }
  /// Must key k travel to one who holds query q? Exact: when q sees it. Else when the reach of q alone has it.
  bool sends(index_t q, index_t k) const {
    if (reaching_ == reaching::exact && knows_reach()) return allows(q, k);
    bool inside = false;
    reach({q, q + 1}, [&](interval keys) { inside = inside || keys.contains(k); });
    return inside;
  }
  const std::string& name() const { return name_; }

 private:
  struct base {
    virtual ~base() = default;
    virtual bool knows_reach() const = 0;
    virtual bool allows(index_t, index_t) const = 0;
    virtual std::optional<interval_pair> intervals(index_t) const = 0;
    virtual cover covers(interval, interval) const = 0;
    virtual void reach(interval, const std::function<void(interval)>&) const = 0;
    virtual any_mask bound(index_t, index_t, const std::string&) const = 0;
    virtual flaw problem() const = 0;
  };
  template <class M>
  struct model final : base {
    explicit model(const M& m) : mask(m) {}
    bool knows_reach() const override { return interval_mask<M> || has_reach<M>; }
    bool allows(index_t q, index_t k) const override { return mask.allows(q, k); }
    std::optional<interval_pair> intervals(index_t q) const override {
      if constexpr (interval_mask<M>)
        return mask.key_intervals(q);
      else if constexpr (requires { mask.try_key_intervals(q); })
        return mask.try_key_intervals(q);
      else
        return std::nullopt;
    }
    cover covers(interval q, interval k) const override { return seqpar::covers(mask, q, k); }
    void reach(interval q, const std::function<void(interval)>& f) const override {
      seqpar::reach(mask, q, unbounded, f);
    }
    any_mask bound(index_t q, index_t k, const std::string& name) const override {
      return any_mask(seqpar::bound(mask, q, k), name);
    }
    flaw problem() const override { return problem_of(mask); }
    M mask;
  };
  std::shared_ptr<const base> self_;
  std::string name_;
  reaching reaching_ = reaching::exact;
};

}  // namespace seqpar::test
