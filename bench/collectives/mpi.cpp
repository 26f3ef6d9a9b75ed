// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// collectives over MPI, beside a program that calls MPI itself.
#include <bench/collectives/collectives.hpp>
#include <bench/support/sites.hpp>
#include <seqpar/exchange/carry.hpp>
#include <seqpar/transport/mpi.hpp>

namespace seqpar::bench {
namespace {

/// The blocks of a route as a program without seqpar would move them: datatypes made once, receives, sends, its own
/// rows, one wait for all.
class by_hand {
 public:
  by_hand(const ask& a, const route& way, int rank, const void* in, void* out) {
    const auto array = [&](const holding& h, const void* memory) {
      const index_t column = a.row_bytes / a.columns();
      return row_array{const_cast<void*>(memory), 1, 0, h.columns.size() * column, column, column};
    };
    const row_array owner = array(a.holds(rank), in), wanter = array(a.wants(rank), out);
    const auto add = [&](const block& b, int peer, bool receives) {
      posts_.push_back({b.pointer, type_of(b), peer, receives});
    };
    for (const leg& l : way.incoming())
      detail::for_each_line(l, 1,
                            [&](const detail::line& n) { add(detail::wanter_block(wanter, l, n), l.peer, true); });
    for (const leg& l : way.outgoing())
      detail::for_each_line(l, 1, [&](const detail::line& n) { add(detail::owner_block(owner, l, n), l.peer, false); });
    detail::for_each_line(way.own(), 1, [&](const detail::line& n) {
      own_.emplace_back(detail::wanter_block(wanter, way.own(), n), detail::owner_block(owner, way.own(), n));
    });
    requests_.resize(posts_.size());
  }
  by_hand(const by_hand&) = delete;
  ~by_hand() {
    for (post& p : posts_) MPI_Type_free(&p.type);
  }

  void run() {
    for (std::size_t i = 0; i < posts_.size(); ++i) {
      const post& p = posts_[i];
      if (p.receives)
        MPI_Irecv(p.pointer, 1, p.type, p.peer, 0, MPI_COMM_WORLD, &requests_[i]);
      else
        MPI_Isend(p.pointer, 1, p.type, p.peer, 0, MPI_COMM_WORLD, &requests_[i]);
    }
    for (const auto& [to, from] : own_)
      if (to.dense() && from.dense()) {
        std::memcpy(to.pointer, from.pointer, static_cast<std::size_t>(to.bytes()));
      } else {
        for (index_t i = 0; i < to.rows; ++i)
          std::memcpy(static_cast<std::byte*>(to.pointer) + i * to.row_stride,
                      static_cast<std::byte*>(from.pointer) + i * from.row_stride,
                      static_cast<std::size_t>(to.columns * to.column_bytes));
      }
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

 private:
  struct post {
    void* pointer;
    MPI_Datatype type;
    int peer;
    bool receives;
  };
  static MPI_Datatype type_of(const block& b) {
    MPI_Datatype type;
    const auto count = [](index_t n) { return static_cast<int>(n); };
    if (b.dense())
      MPI_Type_contiguous(count(b.bytes()), MPI_BYTE, &type);
    else
      MPI_Type_create_hvector(count(b.rows), count(b.columns * b.column_bytes), b.row_stride, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
  }

  std::vector<post> posts_;
  std::vector<std::pair<block, block>> own_;
  std::vector<MPI_Request> requests_;
};

struct site : host_site<mpi::transport> {
  using host_site::host_site;
  std::function<void()> plain(const ask& a, const route& way, int rank, const void* in, void* out) {
    if (sums(a.what)) return {};
    const auto program = std::make_shared<by_hand>(a, way, rank, in, out);
    return [=] { program->run(); };
  }
};

}  // namespace

void measure_mpi(const command& c, const report& tell) {
  struct job {
    job() { MPI_Init(nullptr, nullptr); }
    ~job() { MPI_Finalize(); }
  } started;
  mpi::world world(MPI_COMM_WORLD, {.deadline = std::chrono::minutes(2)});
  const mpi::transport t(world);
  site mine(t);
  for (const ask& a : c.asks(t.size())) {
    const figures f = measure(t, mine, a, c.work);
    if (t.rank() == 0) tell(a, f);
  }
}

}  // namespace seqpar::bench
