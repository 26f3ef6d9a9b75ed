// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport that cannot tell its peers that it gave up.
// expect: [seqpar] a transport has void abort(status) const
#include <seqpar/transport/explain.hpp>

struct nowhere {
  struct group_type {
    void reserve(seqpar::index_t, seqpar::index_t) {}
    void clear() {}
    void label(seqpar::message_label) {}
    void send(seqpar::block, int) noexcept {}
    void recv(seqpar::block, int) noexcept {}
  };
  static constexpr auto access = seqpar::transport_access::strided;
  int rank() const { return 0; }
  int size() const { return 1; }
  group_type group() const { return {}; }
  seqpar::status launch(group_type&, seqpar::on_host) const { return {}; }
  seqpar::status wait(group_type&, seqpar::on_host) const { return {}; }
  seqpar::status wait(group_type&, seqpar::on_host, std::chrono::nanoseconds) const { return {}; }
  seqpar::status check() const { return {}; }
#ifdef TWIN
  void abort(seqpar::status) const {}
#endif
};
static_assert(seqpar::explain_transport<nowhere>());
