// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tests/mpi/engine.hpp>

#include <cstdlib>
#include <memory>

#include <seqpar/communicator/mesh.hpp>
#include <seqpar/transport/explain.hpp>
#include <seqpar/transport/laws.hpp>
#include <seqpar/transport/traced.hpp>

using mpi_test::here;
using seqpar::block;
using seqpar::dense_block;
using seqpar::index_t;
using seqpar::on_host;
namespace mpi = seqpar::mpi;

static_assert(seqpar::explain_transport<mpi::transport>());
static_assert(seqpar::explain_transport<seqpar::traced<mpi::transport>>());

namespace {

std::string broken(const auto& t, index_t repetitions) {
  const char* law = seqpar::run_transport_laws(t, {.repetitions = repetitions});
  return law ? law : "";
}

/// A communicator of the test's own.
struct split {
  MPI_Comm comm = MPI_COMM_NULL;
  split(int color, int key) { MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm); }
  split(const split&) = delete;
  ~split() {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
};

}  // namespace

TEST_CASE("the laws of a transport hold on MPI, 1000 times over [J1] [J2] [J4]") {
  CHECK(broken(here(), here().size() <= 4 ? 1000 : 200) == "");
}

TEST_CASE("the laws of a transport hold on traced MPI") {
  const mpi::transport t = here();
  seqpar::flight_record record(t.rank(), t.size(), 16);
  CHECK(broken(seqpar::traced{t, record}, 20) == "");
}

TEST_CASE("the laws of a transport hold on some ranks of MPI in another order, while the others do the same [O1]") {
  const split half(here().rank() % 2, -here().rank());
  mpi::world world(half.comm);
  const mpi::transport t(world);
  CHECK(t.rank() == (here().size() - 1 - here().rank()) / 2);
  CHECK(broken(t, 50) == "");
}

TEST_CASE("messages of a pair arrive in the order in which they were added, in however many groups on either side") {
  const mpi::transport t = here();
  const int right = (t.rank() + 1) % t.size(), left = (t.rank() + t.size() - 1) % t.size();
  std::int64_t out[] = {1, 2, 3}, in[3] = {};
  auto together = t.group(), first = t.group(), others = t.group();
  for (auto* g : {&together, &first, &others}) g->reserve(3, 3);
  for (const bool sends_together : {true, false}) {
    std::fill(in, in + 3, 0);
    for (auto* g : {&together, &first, &others}) g->clear();
    for (int i = 0; i < 3; ++i) {
      auto& apart = i == 0 ? first : others;
      (sends_together ? together : apart).send(dense_block(out + i, 8), right);
      (sends_together ? apart : together).recv(dense_block(in + i, 8), left);
    }
    for (auto* g : {&together, &first, &others}) check(t.launch(*g, on_host{}));
    for (auto* g : {&others, &together, &first}) check(t.wait(*g, on_host{}));
    CHECK((in[0] == 1 && in[1] == 2 && in[2] == 3));
  }
}

TEST_CASE("everybody sends 4 MiB to everybody first [J1]") {
  const mpi::transport t = here();
  const auto ranks = static_cast<std::size_t>(t.size());
  constexpr index_t bytes = index_t{4} << 20;
  std::vector<std::vector<char>> out(ranks, std::vector<char>(bytes, static_cast<char>(t.rank()))), in = out;
  auto sends = t.group(), receives = t.group();
  sends.reserve(t.size(), 0);
  receives.reserve(0, t.size());
  for (std::size_t r = 0; r < ranks; ++r) {
    sends.send(dense_block(out[r].data(), bytes), static_cast<int>(r));
    receives.recv(dense_block(in[r].data(), bytes), static_cast<int>(r));
  }
  for (int i = 0; i < 40 / t.size(); ++i) {
    check(t.launch(sends, on_host{}));
    check(t.launch(receives, on_host{}));
    check(t.wait(receives, on_host{}));
    check(t.wait(sends, on_host{}));
  }
  for (std::size_t r = 0; r < ranks; ++r) CHECK(in[r] == std::vector<char>(bytes, static_cast<char>(r)));
}

TEST_CASE("a message over MPI may have 2^31 + 5 bytes, between blocks of other shapes [D3]") {
  const mpi::transport t = here();
  if (t.size() != 2) return;  // once is enough
  constexpr index_t rows = 49, row = 43826197, bytes = rows * row;
  static_assert(bytes == (index_t{1} << 31) + 5);
  auto g = t.group();
  g.reserve(1, 1);
  const auto value = [](index_t i) { return static_cast<unsigned char>(i % 251 + 1); };
  if (t.rank() == 0) {  // one row again and again
    std::vector<unsigned char> data(static_cast<std::size_t>(row));
    for (index_t i = 0; i < row; ++i) data[static_cast<std::size_t>(i)] = value(i);
    g.send({data.data(), rows, 0, 1, row, row}, 1);
    check(t.launch(g, on_host{}));
    check(t.wait(g, on_host{}));
  } else {  // one piece of memory
    const std::unique_ptr<unsigned char, void (*)(void*)> data(
        static_cast<unsigned char*>(std::malloc(static_cast<std::size_t>(bytes))), std::free);
    REQUIRE(data != nullptr);
    g.recv(dense_block(data.get(), bytes), 0);
    check(t.launch(g, on_host{}));
    check(t.wait(g, on_host{}));
    index_t wrong = 0;
    for (index_t r = 0; r < rows; ++r)
      for (index_t i = 0; i < row; i += i % 4096 == 0 ? 1 : 4095) wrong += data.get()[r * row + i] != value(i);
    CHECK(wrong == 0);
    CHECK(data.get()[bytes - 1] == value(row - 1));
  }
}

TEST_CASE("messages of the caller's communicator, of any tag, never meet those of the world") {
  const mpi::transport t = here();
  std::int64_t got = -1;
  const std::int64_t sent = 1000 + t.rank();
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(&got, sizeof got, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  CHECK(broken(t, 5) == "");
  MPI_Send(&sent, sizeof sent, MPI_BYTE, (t.rank() + 1) % t.size(), 0, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(got == 1000 + (t.rank() + t.size() - 1) % t.size());
}

TEST_CASE("a communicator smaller than the mesh is an error of the mesh") {
  const index_t size = here().size();
  CHECK_THROWS_WITH_AS(seqpar::mesh(here(), {.ring = size + 1, .all_to_all = 1}),
                       doctest::Contains("is not the number of ranks"), seqpar::error);
}
