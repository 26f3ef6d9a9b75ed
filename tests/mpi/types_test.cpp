// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks as MPI datatypes: every count fits MPI's, and the bytes are the block's.
#include <tests/mpi/engine.hpp>

#include <random>

#include <seqpar/space/copy.hpp>
#include <tests/mpi/interposed.hpp>
#include <tests/support/allocations.hpp>

using mpi_test::here;
using seqpar::block;
using seqpar::copy_block;
using seqpar::dense_block;
using seqpar::index_t;
using seqpar::on_host;
namespace mpi = seqpar::mpi;

namespace {

struct made_type {
  MPI_Datatype type;
  explicit made_type(MPI_Datatype t) : type(t) {}
  made_type(const made_type&) = delete;
  ~made_type() {
    if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
  }
};

/// Adds up a type from how it was made: its bytes, and the largest count in it.
struct recipe_of_type {
  index_t bytes = 0, largest_count = 0;
};
recipe_of_type read(MPI_Datatype type) {
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner == MPI_COMBINER_NAMED) return {1, 1};
  std::vector<int> i(static_cast<std::size_t>(integers));
  std::vector<MPI_Aint> a(static_cast<std::size_t>(addresses));
  std::vector<MPI_Datatype> t(static_cast<std::size_t>(types));
  MPI_Type_get_contents(type, integers, addresses, types, i.data(), a.data(), t.data());
  recipe_of_type all;
  for (std::size_t part = 0; part < t.size(); ++part) {
    const recipe_of_type inner = read(t[part]);
    const index_t count = combiner == MPI_COMBINER_HVECTOR ? i[0] : 1;
    if (combiner == MPI_COMBINER_HVECTOR) CHECK(i[1] == 1);
    if (combiner == MPI_COMBINER_STRUCT) CHECK(i[1 + part] == 1);
    all.bytes += count * inner.bytes;
    all.largest_count = std::max({all.largest_count, count, inner.largest_count});
    int a0 = 0, b0 = 0, c0 = 0, named = 0;
    MPI_Type_get_envelope(t[part], &a0, &b0, &c0, &named);
    if (named != MPI_COMBINER_NAMED) MPI_Type_free(&t[part]);
  }
  return all;
}

/// Blocks of all kinds in a memory of `size` bytes whose pieces do not overlap: strides may be negative.
class blocks {
 public:
  explicit blocks(unsigned seed) : draw_(seed) {}
  block in(std::vector<unsigned char>& memory, index_t rows, index_t columns, index_t column_bytes) {
    const index_t gap = below(4), column = column_bytes + gap, row = columns * column + below(5);
    const bool rows_first = below(3) == 0;  // columns further apart than rows
    block b{nullptr, rows, row, columns, column, column_bytes};
    if (rows_first) b.row_stride = column, b.column_stride = rows * column + below(5);
    index_t first = 3;
    if (below(2) == 0) first += (rows - 1) * b.row_stride, b.row_stride = -b.row_stride;
    if (below(2) == 0) first += (columns - 1) * b.column_stride, b.column_stride = -b.column_stride;
    memory.assign(static_cast<std::size_t>(rows * columns * (column + 5) * 3 + 64), 0xCD);
    b.pointer = memory.data() + first;
    return b;
  }
  index_t below(index_t n) { return static_cast<index_t>(draw_() % static_cast<std::uint32_t>(n)); }

 private:
  std::minstd_rand draw_;
};

}  // namespace

TEST_CASE("types of blocks of more than 2^31 bytes are made of counts that MPI can hold, and have all bytes [D3]") {
  constexpr index_t two31 = index_t{1} << 31;
  char anything = 0;
  for (const block& b : {dense_block(&anything, two31 + 5), dense_block(&anything, 1'200'000'000),
                         dense_block(&anything, index_t{5'000'000'000}), dense_block(&anything, (index_t{1} << 62) + 1),
                         block{&anything, two31 + 7, 48, 1, 0, 16}, block{&anything, 3, two31 * 4, two31 - 1, 3, 2},
                         block{&anything, two31, -64, 1, 0, two31 / 2 + 1}, block{&anything, two31 + 1, -1, 1, 1, 1},
                         block{&anything, 5, 8, two31 * 2 + 3, -80, 4}}) {
    mpi::detail::type_maker maker;
    const made_type made(maker.make(b));
    REQUIRE(maker.error() == MPI_SUCCESS);
    const recipe_of_type all = read(made.type);
    CHECK(all.bytes == b.bytes());
    CHECK(all.largest_count <= two31 - 1);
    MPI_Count size = 0;
    MPI_Type_size_x(made.type, &size);
    CHECK(size == b.bytes());
  }
}

TEST_CASE("a type covers the bytes of its block in order, each once, however often its counts are split [D3]") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    blocks draw(seed);
    std::vector<unsigned char> memory;
    const block b = draw.in(memory, 1 + draw.below(12), 1 + draw.below(5), 1 + draw.below(9));
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<unsigned char>(i * 7 % 251);
    mpi::detail::type_maker maker(2 + draw.below(4));
    const made_type made(maker.make(b));
    REQUIRE(maker.error() == MPI_SUCCESS);
    std::vector<unsigned char> want(static_cast<std::size_t>(b.bytes())), got(want.size() + 1, 0xCD);
    copy_block(dense_block(want.data(), b.bytes()), b);
    int packed = 0;
    MPI_Pack(b.pointer, 1, made.type, got.data(), static_cast<int>(got.size()), &packed, MPI_COMM_WORLD);
    REQUIRE(packed == b.bytes());
    got.pop_back();
    CHECK(got == want);
  }
}

TEST_CASE("blocks of any strides, negative ones too, arrive in blocks of any other, and nothing beside them changes") {
  const mpi::transport t = here();
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    blocks draw(seed);  // the same on all ranks
    const index_t unit = 1 + draw.below(7), a = 1 + draw.below(6), b = 1 + draw.below(6), c = 1 + draw.below(4);
    std::vector<unsigned char> out, in;
    const block from = draw.in(out, a * c, b, unit), to = draw.in(in, a, b, c * unit);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(t.rank()) * 31);
    // What the left neighbour has, which differs by its rank alone.
    std::vector<unsigned char> theirs = out, want = in;
    const int left = (t.rank() + t.size() - 1) % t.size();
    for (std::size_t i = 0; i < out.size(); ++i)
      theirs[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(left) * 31);
    block from_theirs = from, to_want = to;
    from_theirs.pointer = theirs.data() + (static_cast<unsigned char*>(from.pointer) - out.data());
    to_want.pointer = want.data() + (static_cast<unsigned char*>(to.pointer) - in.data());
    copy_block(to_want, from_theirs);
    auto g = t.group();
    g.reserve(1, 1);
    g.send(from, (t.rank() + 1) % t.size());
    g.recv(to, left);
    check(t.launch(g, on_host{}));
    check(t.wait(g, on_host{}));
    CHECK(in == want);
  }
}

TEST_CASE("messages of shapes that were met before make no datatype, and launch and wait allocate nothing") {
  const mpi::transport t = here();
  std::vector<unsigned char> out, in;
  blocks draw(7);
  auto g = t.group();
  g.reserve(3, 3);
  const block shapes[] = {draw.in(out, 9, 3, 5), {out.data(), 4, 16, 2, 5, 3}, dense_block(out.data(), 40)};
  draw.in(in, 9, 3, 5);
  const auto once = [&] {
    g.clear();
    g.label({"again", 0});
    for (const block& s : shapes) {
      block here_too = s;
      here_too.pointer = in.data() + (static_cast<unsigned char*>(s.pointer) - out.data());
      g.send(s, (t.rank() + 1) % t.size());
      g.recv(here_too, (t.rank() + t.size() - 1) % t.size());
    }
    check(t.launch(g, on_host{}));
    check(t.wait(g, on_host{}));
  };
  once();
  const int made = types_made;
  allocations = 0;
  counting = true;
  for (int i = 0; i < 20; ++i) once();
  counting = false;
  CHECK(allocations == 0);
  CHECK(types_made == made);
  CHECK(made > 0);
}

TEST_CASE("an error of MPI is a status on the rank that meets it, with MPI's words in the report, and peers are told") {
  mpi::world world(MPI_COMM_WORLD, {.deadline = std::chrono::seconds(20), .then = mpi::after_failure::report});
  const mpi::transport t(world);
  std::int64_t in = 0;
  auto g = t.group();
  g.reserve(1, 1);
  g.send(dense_block(&in, 8), (t.rank() + 1) % t.size());
  sends_fail = t.rank() == 0;
  const seqpar::status launched = t.launch(g, on_host{});
  sends_fail = false;
  if (t.rank() == 0) {
    CHECK(launched.code() == seqpar::errc::transport_failed);
    CHECK(t.launch(g, on_host{}).code() == seqpar::errc::transport_failed);
    CHECK(t.report().starts_with("rank 0: MPI_ERR_INTERN"));
  } else {
    check(launched);
    auto never = t.group();
    never.reserve(0, 1);
    never.recv(dense_block(&in, 8), (t.rank() + 1) % t.size());  // from the other side: nobody sends
    const seqpar::status s = t.wait(g, on_host{});
    check(s);
    check(t.launch(never, on_host{}));
    const seqpar::status told = t.wait(never, on_host{});
    CHECK(told.code() == seqpar::errc::peer_failed);
    CHECK(told.rank() == 0);
  }
}
