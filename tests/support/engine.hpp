// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where a test's ranks come from, so that one body runs on any transport.
#pragma once

#include <memory_resource>
#include <vector>

#include <seqpar/transport/threads.hpp>

namespace seqpar::test {

/// Where a rank computes: the exec of its runs, memory that they work in, and a way to see what they did.
struct host_site {
  on_host exec{};
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
  void settle() const {}   ///< all that exec was given is done
  void abandon() const {}  ///< the same, whatever became of it
};

/// Threads of this process, which share the body's memory. Another engine has the same members.
struct on_threads {
  using transport = threads::transport;

  /// f(transport) on each of o.ranks ranks; throws the first that one throws.
  template <class F>
  void run(const threads::options& o, F&& f) const {
    run_ranks(o, f);
  }
  static host_site site(const transport&) { return {}; }
  /// Every rank has set some elements of x and left the others as they were, `before`: now x has them all, on every
  /// rank. No element may be set by two.
  template <class T>
  void combine(std::vector<T>& /*x*/, const T& /*before*/) const {}
};

}  // namespace seqpar::test
