// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One rank's plan, memory and tensors in the open, for tests that drive plans themselves or misuse them.
#pragma once

#include <tests/attention/cases.hpp>

namespace seqpar::test {

/// Without joint tokens. Defined in harness_test.cpp, so that plans are compiled once.
struct rank_run {
  using transport_type = traced<threads::transport>;
  using plan_type = attention_plan<float, any_mask, transport_type>;

  /// Plans p for this rank of the world and makes memory and tensors of exactly the sizes asked for.
  rank_run(const threads::transport& world, const problem& p, index_t remembered = 16);
  rank_run(const rank_run&) = delete;
  void prepare();
  /// Replaces layouts and mask, keeping the memory; tensors are made anew.
  void update(const problem& next);
  /// Fills the inputs with this rank's rows of global tensors, the outputs with NaN.
  void load(const problem& p, const tensors& in);
  status forward() const noexcept;
  status backward() const noexcept;
  /// Adds this rank's rows to what all ranks computed.
  void store(const problem& p, outcome<float>& to) const;

  flight_record record;
  mesh<transport_type> team;
  plan_type plan;
  host_memory owned;
  seqpar::memory given;  ///< what runs are given: owned, unless a test spoils it
  std::vector<float> q, k, v, out, lse, dout, dlse, dq, dk, dv;
  plan_type::forward_type f;
  plan_type::backward_type b;
};

/// As large as the problem's global tensors, full of NaN.
outcome<float> empty_outcome(const problem& p);

}  // namespace seqpar::test
