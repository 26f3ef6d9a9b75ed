// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Windows of every kind, run on thread ranks in double and compared with lists of what each place should hold.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <seqpar/exchange/halo.hpp>
#include <seqpar/transport/recorder.hpp>
#include <seqpar/transport/self.hpp>
#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>

namespace window_test {

using namespace seqpar;
using traced_threads = traced<threads::transport>;
using rows_of_ranks = std::vector<std::vector<index_t>>;

/// Byte offsets of the rows of one rank, and the strides of its batch and columns.
struct spots {
  std::vector<index_t> at;
  index_t batch_stride, column_stride, bytes;
};

/// The part `inner` of a box, in t, h, w order.
inline spots box_spots(const box_view& v, const box& inner, index_t bytes) {
  spots s{{}, v.stride[0], v.stride[4], bytes};
  for (index_t t = inner.t.lo; t < inner.t.hi; ++t)
    for (index_t y = inner.h.lo; y < inner.h.hi; ++y)
      for (index_t x = inner.w.lo; x < inner.w.hi; ++x) s.at.push_back(v.offset(0, t, y, x, 0));
  return s;
}
inline box all_of(const box_view& v) {
  return {{0, v.shape[1]}, {0, v.shape[2]}, {0, v.shape[3]}};
}

inline double value_of(index_t b, index_t row, index_t e) {
  return std::sin(1.0 + static_cast<double>(b * 1009 + row * 31 + e * 7));
}
inline double gradient_of(int rank, index_t b, index_t place, index_t e) {
  return std::cos(static_cast<double>(rank * 613 + b * 211 + place * 17 + e * 3));
}

struct arrangement {
  index_t batch = 1, columns = 1, dim = 1;  ///< a row is columns · dim doubles
  placement where = placement::apart;
  index_t row_bytes() const { return columns * dim * static_cast<index_t>(sizeof(double)); }
  exchange_options options() const {
    return {.row_bytes = row_bytes(), .batch = batch, .columns = columns, .placement = where};
  }
};

/// Rows one after the other.
inline spots dense_spots(index_t rows, const arrangement& a) {
  spots s{{}, rows * a.row_bytes(), a.dim * static_cast<index_t>(sizeof(double)), a.batch * rows * a.row_bytes()};
  for (index_t i = 0; i < rows; ++i) s.at.push_back(i * a.row_bytes());
  return s;
}

/// Bytes that no row has are 0xCD before and after.
class checked_buffer {
 public:
  checked_buffer(const spots& s, const arrangement& a) : a_(a) {
    data_.assign(static_cast<std::size_t>(s.bytes / 8 + 1), 0);
    std::memset(data_.data(), 0xCD, data_.size() * 8);
  }
  void* pointer() { return data_.data(); }
  double& at(const spots& s, index_t b, std::size_t i, index_t e) {
    const index_t c = e / a_.dim, k = e % a_.dim;
    return data_[static_cast<std::size_t>((b * s.batch_stride + s.at[i] + c * s.column_stride) / 8 + k)];
  }
  template <class F>
  void for_each(const spots& s, F&& f) {
    for (index_t b = 0; b < a_.batch; ++b)
      for (std::size_t i = 0; i < s.at.size(); ++i)
        for (index_t e = 0; e < a_.columns * a_.dim; ++e) f(b, i, e, at(s, b, i, e));
  }
  bool untouched_beside(const spots& s) {
    for_each(s, [&](index_t, std::size_t, index_t, double& x) { std::memset(&x, 0xCD, sizeof x); });
    for (double x : data_) {
      unsigned char bytes[8];
      std::memcpy(bytes, &x, 8);
      for (unsigned char c : bytes)
        if (c != 0xCD) return false;
    }
    return true;
  }

 private:
  const arrangement& a_;
  std::vector<double> data_;
};

/// owned[r]: the rows that rank r holds; wanted[r]: the row at each place of its windows, −1 for a zero.
/// plan_of(team) plans; spots_of(plan) gives {owned, wanted} spots of the rank.
template <class PlanOf, class SpotsOf>
std::string broken(int ranks, const arrangement& a, const rows_of_ranks& owned, const rows_of_ranks& wanted,
                   PlanOf&& plan_of, SpotsOf&& spots_of) {
  std::vector<double> ax_y(static_cast<std::size_t>(ranks)), x_aty(static_cast<std::size_t>(ranks));
  const auto body = [&](threads::transport engine) {
    const int me = engine.rank();
    const auto mine = static_cast<std::size_t>(me);
    const auto fail = [&](const std::string& text) {
      raise(error(errc::invalid_argument, "rank " + std::to_string(me) + ": " + text));
    };
    flight_record record(me, engine.size(), 1);
    const mesh<traced_threads> team = ring(traced_threads(engine, record));
    auto plan = plan_of(team);
    const host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});
    const auto [own, want] = spots_of(plan);
    const bool in_place = a.where == placement::in_place;
    if (own.at.size() != owned[mine].size() || want.at.size() != wanted[mine].size()) fail("other rows than expected");

    std::vector<int> owner_of;
    for (std::size_t r = 0; r < owned.size(); ++r)
      for (index_t row : owned[r]) {
        if (owner_of.size() <= static_cast<std::size_t>(row)) owner_of.resize(static_cast<std::size_t>(row) + 1, -1);
        owner_of[static_cast<std::size_t>(row)] = static_cast<int>(r);
      }
    index_t in_bytes = 0, out_bytes = 0;
    for (std::size_t r = 0; r < wanted.size(); ++r)
      for (index_t row : wanted[r]) {
        if (row < 0) continue;
        const int from = owner_of[static_cast<std::size_t>(row)];
        if (static_cast<int>(r) == me && from != me) in_bytes += a.row_bytes() * a.batch;
        if (static_cast<int>(r) != me && from == me) out_bytes += a.row_bytes() * a.batch;
      }
    if (plan.bytes_sent() != out_bytes || plan.bytes_received() != in_bytes) fail("promises other bytes");
    const auto moved = [&](const char* what, index_t sent, index_t received, auto&& f) {
      const index_t s = record.bytes(direction::send), r = record.bytes(direction::receive);
      check(f());
      if (record.bytes(direction::send) - s != sent || record.bytes(direction::receive) - r != received)
        fail(std::string(what) + ": other bytes moved than were wanted");
    };

    checked_buffer out(want, a), apart(own, a);
    checked_buffer& in = in_place ? out : apart;
    in.for_each(own, [&](index_t b, std::size_t i, index_t e, double& x) { x = value_of(b, owned[mine][i], e); });
    moved("forward", out_bytes, in_bytes, [&] { return plan.forward(in.pointer(), out.pointer(), memory, on_host{}); });
    out.for_each(want, [&](index_t b, std::size_t i, index_t e, double& x) {
      const index_t row = wanted[mine][i];
      if (x != (row < 0 ? 0.0 : value_of(b, row, e))) fail("forward: place " + std::to_string(i));
      ax_y[mine] += x * gradient_of(me, b, static_cast<index_t>(i), e);
    });
    if (!out.untouched_beside(want)) fail("forward wrote beside its windows");

    std::vector<std::vector<std::pair<int, index_t>>> wanters(owner_of.size());
    for (std::size_t r = 0; r < wanted.size(); ++r)
      for (std::size_t j = 0; j < wanted[r].size(); ++j)
        if (wanted[r][j] >= 0)
          wanters[static_cast<std::size_t>(wanted[r][j])].push_back({static_cast<int>(r), static_cast<index_t>(j)});
    checked_buffer dout(want, a), dapart(own, a);
    checked_buffer& din = in_place ? dout : dapart;
    dout.for_each(want, [&](index_t b, std::size_t i, index_t e, double& x) {
      x = gradient_of(me, b, static_cast<index_t>(i), e);
    });
    moved("adjoint", in_bytes, out_bytes,
          [&] { return plan.template adjoint<double>(dout.pointer(), din.pointer(), memory, on_host{}); });
    din.for_each(own, [&](index_t b, std::size_t i, index_t e, double& x) {
      double sum = 0;
      for (const auto& [r, j] : wanters[static_cast<std::size_t>(owned[mine][i])]) sum += gradient_of(r, b, j, e);
      if (std::abs(x - sum) > 1e-12) fail("adjoint: row " + std::to_string(i));
      x_aty[mine] += value_of(b, owned[mine][i], e) * x;
    });
    if (!in_place && !din.untouched_beside(own)) fail("adjoint wrote beside its rows");

    for (const auto& list : wanters)
      if (list.size() > 1) return;  // no inverse
    checked_buffer back(want, a), bapart(own, a);
    checked_buffer& home = in_place ? back : bapart;
    home.for_each(own, [](index_t, std::size_t, index_t, double& x) { x = -7; });
    back.for_each(want, [&](index_t b, std::size_t i, index_t e, double& x) {
      x = gradient_of(me, b, static_cast<index_t>(i), e);
    });
    moved("inverse", in_bytes, out_bytes,
          [&] { return plan.inverse(back.pointer(), home.pointer(), memory, on_host{}); });
    home.for_each(own, [&](index_t b, std::size_t i, index_t e, double& x) {
      const auto& from = wanters[static_cast<std::size_t>(owned[mine][i])];
      if (x != (from.empty() ? -7.0 : gradient_of(from[0].first, b, from[0].second, e)))
        fail("inverse: row " + std::to_string(i));
    });
    if (!in_place && !home.untouched_beside(own)) fail("inverse wrote beside its rows");
  };
  threads::options world{.ranks = ranks};
  world.adversary = static_cast<std::uint64_t>(a.batch + 2 * a.columns + 6 * a.dim);  // late and out of order
  try {
    run_ranks(world, body);
  } catch (const std::exception& e) {
    return e.what();
  }
  double left = 0, right = 0, size = 1;
  for (std::size_t r = 0; r < ax_y.size(); ++r) {
    left += ax_y[r];
    right += x_aty[r];
    size += std::abs(ax_y[r]);
  }
  return std::abs(left - right) <= 1e-12 * size ? "" : "the adjoint is none";
}

/// The row that stands at i of n, by the definition of a border; −1: zero; −2: no place.
inline index_t reference_row(index_t i, index_t n, border b) {
  if (0 <= i && i < n) return i;
  if (b == border::clamp) return -2;
  return b == border::zero || n == 0 ? -1 : i < 0 ? 0 : n - 1;
}

/// Where two ranks that plan alone expect different blocks of one another, or ""; each_plan sees all plans.
template <class PlanOf, class EachPlan>
std::string disagreement(int ranks, PlanOf&& plan_of, EachPlan&& each_plan) {
  using blocks = std::vector<std::vector<index_t>>;
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::vector<blocks>> sent(n, std::vector<blocks>(n)), received = sent;
  std::vector<recorded_message> log;
  const auto list = [](const leg& l) {
    blocks b{{l.columns.lo, l.columns.hi}};
    for (const stretch& s : l.stretches) b.push_back({s.count, s.repeat});
    return b;
  };
  for (std::size_t r = 0; r < n; ++r) {
    auto plan = plan_of(ring(recorder(static_cast<int>(r), ranks, log)));
    for (const leg& l : plan.way().outgoing()) sent[r][static_cast<std::size_t>(l.peer)] = list(l);
    for (const leg& l : plan.way().incoming()) received[static_cast<std::size_t>(l.peer)][r] = list(l);
    if (!log.empty()) return "planning communicates";
    each_plan(plan);
    log.clear();
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      if (sent[i][j] != received[i][j]) return "from rank " + std::to_string(i) + " to " + std::to_string(j);
  return "";
}

/// The text of the error that every rank gets, or "" where one gets none or another.
template <class PlanOf>
std::string refusal(int ranks, PlanOf&& plan_of) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](threads::transport engine) {
    const auto plan = plan_of(ring(engine));
    if (!plan.ok()) said[static_cast<std::size_t>(engine.rank())] = plan.failure().what();
  });
  for (const std::string& s : said)
    if (s != said[0]) return "";
  return said[0];
}

}  // namespace window_test
