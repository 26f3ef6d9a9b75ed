// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Meshes whose number of ranks does not fit 64 bits, or fits only after it wrapped around.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <seqpar/communicator/mesh.hpp>
#include <seqpar/transport/recorder.hpp>

using namespace seqpar;

namespace {

std::string made(index_t ring, index_t all_to_all) {
  std::vector<recorded_message> log;
  try {
    const mesh m(recorder(0, 4, log), {.ring = ring, .all_to_all = all_to_all}, {0, 1, 2, 3});
    return "made";
  } catch (const error& e) {
    return e.code() == errc::invalid_argument ? e.what() : "another code";
  }
}

}  // namespace

TEST_CASE("a mesh of more ranks than a number holds is refused, also where the product wraps around to the right one") {
  constexpr index_t large = index_t{1} << 33, wraps = (index_t{1} << 62) + 1;
  CHECK(made(2, 2) == "made");
  for (const auto& [ring, all_to_all] : {std::pair{large, large},
                                         {wraps, index_t{4}},
                                         {index_t{4}, wraps},
                                         {INT64_MAX, INT64_MAX},
                                         {INT64_MAX, index_t{1}},
                                         {index_t{1}, INT64_MAX}}) {
    const std::string said = made(ring, all_to_all);
    CHECK_MESSAGE(said.starts_with("[seqpar] mesh: "), said);
    CHECK_MESSAGE(said.find(std::to_string(ring)) != std::string::npos, said);
    CHECK_MESSAGE(said.find("needs 0 ") == std::string::npos, said);
  }
}
