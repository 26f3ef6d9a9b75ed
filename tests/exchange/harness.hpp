// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exchanges of every kind, run on ranks of any engine and compared with what the lists of owned and wanted rows say.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <seqpar/exchange/broadcast.hpp>
#include <seqpar/exchange/gather.hpp>
#include <seqpar/exchange/reshard.hpp>
#include <seqpar/exchange/scatter.hpp>
#include <seqpar/layout/contiguous.hpp>
#include <seqpar/layout/grid.hpp>
#include <seqpar/layout/nested.hpp>
#include <seqpar/layout/paired.hpp>
#include <seqpar/layout/per_document.hpp>
#include <seqpar/layout/reordered.hpp>
#include <seqpar/layout/segments.hpp>
#include <seqpar/layout/striped.hpp>
#include <seqpar/layout/zigzag.hpp>
#include <seqpar/transport/threads.hpp>
#include <seqpar/transport/traced.hpp>
#include <tests/support/any.hpp>
#include <tests/support/engine.hpp>
#include <tests/support/guarded_memory.hpp>

namespace exchange_test {

using namespace seqpar;
using test::any_layout;
using test::on_threads;
using traced_threads = traced<threads::transport>;
using team_type = mesh<traced_threads>;

/// The last row first.
struct backwards {
  index_t tokens;
  constexpr index_t from(index_t i) const { return tokens - 1 - i; }
  constexpr index_t to(index_t i) const { return tokens - 1 - i; }
  friend constexpr bool operator==(backwards, backwards) = default;
};

/// Every kind of layout that deals `tokens` over `ranks`, with the tables that some of them view.
class layouts {
 public:
  layouts(index_t tokens, int ranks) {
    const index_t n = tokens, p = ranks;
    add(contiguous{.tokens = n, .ranks = p}, "contiguous");
    add(contiguous{.tokens = n, .ranks = p, .rule = uneven::last_takes_rest}, "contiguous, last takes rest");
    add(contiguous{.tokens = n, .ranks = p, .granule = 3, .rule = uneven::ceil_each}, "contiguous by 3, ceil");
    add(zigzag{.tokens = n, .ranks = p}, "zigzag");
    add(zigzag{.tokens = n, .ranks = p, .granule = 2}, "zigzag by 2");
    add(striped{.tokens = n, .ranks = p}, "striped");
    add(striped{.tokens = n, .ranks = p, .granule = 3}, "striped by 3");
    add(reordered{backwards{n}, zigzag{.tokens = n, .ranks = p}}, "backwards zigzag");
    const grid_split split = near_square(p);
    const index_t height = n % 2 == 0 ? 2 : 1, width = n % 3 == 0 ? 3 : 1;
    add(
        grid{
            .frames = 1, .height = height * width, .width = n / height / width, .split_h = split.h, .split_w = split.w},
        "grid");
    add(grid{.frames = n / height / width, .height = height, .width = width, .split_h = split.w, .split_w = split.h},
        "grid of frames");
    for (index_t u : {index_t{2}, index_t{3}})
      if (p % u == 0) {
        const zigzag outer{.tokens = n, .ranks = p / u};
        const striped inner{.tokens = n, .ranks = u};
        add(nested<zigzag, striped>{outer, inner, axis::all_to_all}, "nested");
        add(nested<zigzag, striped>{outer, inner, axis::ring}, "nested, ring inside");
      }
    if (n % 2 == 0) {
      add(paired<contiguous>{contiguous{.tokens = n / 2, .ranks = p}}, "paired contiguous");
      add(paired<zigzag>{zigzag{.tokens = n / 2, .ranks = p}}, "paired zigzag");
    }
    bounds_ = {0, n / 5, n / 5, n / 2, n};
    add(per_document{bounds_, zigzag{.tokens = n, .ranks = p}}, "per document");
    deal_at_random(n, ranks);
    add(segments{runs_, offsets_}, "segments");
  }
  layouts(const layouts&) = delete;
  const std::vector<any_layout>& all() const { return all_; }

 private:
  template <class L>
  void add(const L& l, const char* name) {
    all_.emplace_back(l, name);
  }
  /// Runs of all steps, backwards too, dealt to ranks by chance.
  void deal_at_random(index_t n, int ranks) {
    std::minstd_rand draw(static_cast<unsigned>(n * 64 + ranks));
    std::vector<std::vector<run>> dealt(static_cast<std::size_t>(ranks));
    for (index_t first = 0; first < n;) {
      const index_t step = 1 + static_cast<index_t>(draw() % 3), left = (n - first) / step;
      const index_t count = left == 0 ? 1 : 1 + static_cast<index_t>(draw()) % std::min<index_t>(left, 4);
      const index_t block = left == 0 ? 1 : step;  // `block` runs of that step fill block·count rows
      for (index_t i = 0; i < block; ++i) {
        run r{first + i, count, block};
        if (draw() % 2 == 0) r = {r.at(count - 1), count, -block};
        if (count == 1) r.step = 1;
        dealt[draw() % dealt.size()].push_back(r);
      }
      first += block * count;
    }
    offsets_ = {0};
    for (const auto& list : dealt) {
      runs_.insert(runs_.end(), list.begin(), list.end());
      offsets_.push_back(static_cast<index_t>(runs_.size()));
    }
  }

  std::vector<index_t> bounds_, offsets_;
  std::vector<run> runs_;
  std::vector<any_layout> all_;
};

/// The rows of one rank in the order of its memory; −1: a place that is no row.
struct side {
  std::vector<index_t> rows;
  interval columns{0, 1};
};

inline side side_of(const holding& h) {
  side s{{}, h.columns};
  for (const row_piece& p : h.pieces)
    for (index_t i = 0; i < p.rows.count; ++i) {
      const auto at = static_cast<std::size_t>(p.place + i * p.place_step);
      if (s.rows.size() <= at) s.rows.resize(at + 1, -1);
      s.rows[at] = p.rows.at(i);
    }
  return s;
}
inline side side_of(const any_layout& l, int rank, index_t columns) {
  side s{{}, {0, columns}};
  for (index_t i = 0; i < l.count_of(rank); ++i) s.rows.push_back(l.global_of(rank, i));
  return s;
}
inline side side_of_all(index_t rows, index_t columns) {
  side s{{}, {0, columns}};
  for (index_t i = 0; i < rows; ++i) s.rows.push_back(i);
  return s;
}

/// What is to be planned, and what it means.
template <class Engine>
struct movement_on {
  using transport = traced<typename Engine::transport>;
  std::string name;
  std::function<exchange<transport>(const mesh<transport>&, const exchange_options&)> plan;
  std::function<side(int)> owned, wanted;
};
using movement = movement_on<on_threads>;

template <class Engine = on_threads>
movement_on<Engine> scatter_of(const any_layout& l, int root, index_t columns = 1) {
  return {"scatter " + l.name(), [=](const auto& team, const auto& o) { return plan_scatter(team, l, root, o); },
          [=](int r) { return side_of_all(r == root ? l.token_count() : 0, columns); },
          [=](int r) { return side_of(l, r, columns); }};
}
template <class Engine = on_threads>
movement_on<Engine> gather_of(const any_layout& l, index_t columns = 1) {
  return {"gather " + l.name(), [=](const auto& team, const auto& o) { return plan_gather(team, l, o); },
          [=](int r) { return side_of(l, r, columns); }, [=](int) { return side_of_all(l.token_count(), columns); }};
}
template <class Engine = on_threads>
movement_on<Engine> gather_to(const any_layout& l, int root, index_t columns = 1) {
  return {"gather to a root " + l.name(),
          [=](const auto& team, const auto& o) { return plan_gather(team, l, root, o); },
          [=](int r) { return side_of(l, r, columns); },
          [=](int r) { return side_of_all(r == root ? l.token_count() : 0, columns); }};
}
template <class Engine = on_threads>
movement_on<Engine> reshard_of(const any_layout& a, const any_layout& b, index_t columns = 1) {
  return {"reshard " + a.name() + " to " + b.name(),
          [=](const auto& team, const auto& o) { return plan_reshard(team, a, b, o); },
          [=](int r) { return side_of(a, r, columns); }, [=](int r) { return side_of(b, r, columns); }};
}
template <class Engine = on_threads>
movement_on<Engine> broadcast_of(index_t rows, int root, index_t columns = 1) {
  return {"broadcast", [=](const auto& team, const auto& o) { return plan_broadcast(team, rows, root, o); },
          [=](int r) { return side_of_all(r == root ? rows : 0, columns); },
          [=](int) { return side_of_all(rows, columns); }};
}
template <class Holds, class Wants>
movement own_exchange(std::string name, Holds holds, Wants wants) {
  return {std::move(name), [=](const auto& team, const auto& o) { return plan_exchange(team, holds, wants, o); },
          [=](int r) { return side_of(holds(r)); }, [=](int r) { return side_of(wants(r)); }};
}

/// Rows of one rank in memory, with other bytes between and around them that must stay as they are.
class rows_in_memory {
 public:
  /// gaps: bytes behind each row and each item of the batch; 0: dense.
  rows_in_memory(const side& s, index_t batch, index_t column_bytes, index_t gap,
                 std::pmr::memory_resource* where = std::pmr::new_delete_resource())
      : side_(&s), batch_(batch), column_bytes_(column_bytes), data_(where) {
    row_ = s.columns.size() * column_bytes + gap;
    item_ = static_cast<index_t>(s.rows.size()) * row_ + gap;
    data_.assign(static_cast<std::size_t>(batch * item_ + 2 * guard), std::byte{0xCD});
  }
  row_buffer buffer() { return {base(), row_, item_}; }
  std::byte* entry(index_t b, std::size_t place, index_t column) {
    return base() + b * item_ + static_cast<index_t>(place) * row_ + (column - side_->columns.lo) * column_bytes_;
  }
  /// f(b, place, row, column, memory) for every entry.
  template <class F>
  void for_each(F&& f) {
    for (index_t b = 0; b < batch_; ++b)
      for (std::size_t i = 0; i < side_->rows.size(); ++i)
        for (index_t c = side_->columns.lo; side_->rows[i] >= 0 && c < side_->columns.hi; ++c)
          f(b, i, side_->rows[i], c, entry(b, i, c));
  }
  /// Sets what is no entry back to other bytes and says whether it had been touched.
  bool surroundings_untouched() {
    std::vector<bool> used(data_.size(), false);
    for_each([&](index_t, std::size_t, index_t, index_t, std::byte* p) {
      for (index_t i = 0; i < column_bytes_; ++i) used[static_cast<std::size_t>(p + i - data_.data())] = true;
    });
    for (std::size_t i = 0; i < data_.size(); ++i)
      if (!used[i] && data_[i] != std::byte{0xCD}) return false;
    return true;
  }

 private:
  static constexpr index_t guard = 64;
  std::byte* base() { return data_.data() + guard; }
  const side* side_;
  index_t batch_, column_bytes_, row_, item_;
  std::pmr::vector<std::byte> data_;
};

template <class T>
void put(std::byte* to, index_t i, float x) {
  const T value(x);
  std::memcpy(to + i * static_cast<index_t>(sizeof(T)), &value, sizeof(T));
}
template <class T>
float take(const std::byte* from, index_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<index_t>(sizeof(T)), sizeof(T));
  return static_cast<float>(value);
}

/// Whole numbers, so that every sum is exact in every type. Element 0 is the global row.
inline float value_of(index_t b, index_t row, index_t column, index_t e) {
  return static_cast<float>(e == 0 ? row : (b * 31 + row * 7 + column * 13 + e * 5) % 64);
}
inline float gradient_of(int rank, index_t b, std::size_t place, index_t column, index_t e) {
  return static_cast<float>((rank * 17 + b * 11 + static_cast<index_t>(place) * 5 + column * 3 + e * 7) % 31 - 15);
}

struct sweep_options {
  index_t batch = 1, columns = 1, dim = 2, gap = 0;
  std::vector<int> ranks = {};  ///< of the world; empty: all
  int world = 0;
  std::optional<std::uint64_t> adversary = {};
};

template <class Movement>
std::string where(const Movement& m, const char* what, int rank, index_t b, std::size_t place) {
  return m.name + ", " + what + ": rank " + std::to_string(rank) + ", item " + std::to_string(b) + ", row " +
         std::to_string(place);
}

/// Runs every movement in all its senses and compares every element and every byte count; says what is wrong, or "".
template <class T, class Engine = on_threads>
std::string broken(int members, const std::vector<movement_on<Engine>>& movements, const sweep_options& o = {},
                   const Engine& on = {}) {
  const index_t column_bytes = o.dim * static_cast<index_t>(sizeof(T));
  std::vector<std::vector<double>> products(movements.size(),
                                            std::vector<double>(static_cast<std::size_t>(members) * 2));
  using transport = typename movement_on<Engine>::transport;
  std::vector<int> ranks = o.ranks;
  for (int r = 0; o.ranks.empty() && r < members; ++r) ranks.push_back(r);
  const auto body = [&](typename Engine::transport engine) {
    if (std::find(ranks.begin(), ranks.end(), engine.rank()) == ranks.end()) return;
    flight_record record(engine.rank(), engine.size(), 1);
    const mesh<transport> team(transport(engine, record), {.ring = members, .all_to_all = 1}, ranks);
    const int me = team.index();
    auto&& site = on.site(engine);
    for (std::size_t k = 0; k < movements.size(); ++k) {
      const movement_on<Engine>& m = movements[k];
      const auto fail = [&](const std::string& text) { raise(error(errc::invalid_argument, text)); };
      std::vector<side> owned, wanted;
      for (int r = 0; r < members; ++r) {
        owned.push_back(m.owned(r));
        wanted.push_back(m.wanted(r));
      }
      const side &own = owned[static_cast<std::size_t>(me)], &want = wanted[static_cast<std::size_t>(me)];
      const exchange_options options{.row_bytes = o.columns * column_bytes, .batch = o.batch, .columns = o.columns};
      auto plan = m.plan(team, options);
      const test::guarded_memory memory(plan.memory(), site.memory);
      plan.prepare(memory, site.exec);

      // What must move: entries that another rank wants of mine, each once for each rank that wants it.
      const auto entries_between = [](const side& a, const side& b) {
        std::map<index_t, index_t> has;
        for (index_t row : a.rows)
          if (row >= 0) ++has[row];
        index_t n = 0;
        for (index_t row : b.rows)
          if (row >= 0 && has.count(row)) n += has[row];
        return n * intersection(a.columns, b.columns).size();
      };
      index_t out_bytes = 0, in_bytes = 0;
      for (int r = 0; r < members; ++r) {
        if (r == me) continue;
        out_bytes += entries_between(own, wanted[static_cast<std::size_t>(r)]) * o.batch * column_bytes;
        in_bytes += entries_between(owned[static_cast<std::size_t>(r)], want) * o.batch * column_bytes;
      }
      const auto moved = [&](const char* what, index_t sent, index_t received, auto&& f) {
        const index_t s = record.bytes(direction::send), r = record.bytes(direction::receive);
        if (const status result = f(); !result.ok()) raise(error(result));
        site.settle();
        if (record.bytes(direction::send) - s != sent || record.bytes(direction::receive) - r != received)
          fail(m.name + ", " + what + ": other bytes moved than were wanted");
      };
      if (plan.bytes_sent() != out_bytes || plan.bytes_received() != in_bytes) fail(m.name + ": promises other bytes");

      // copy
      rows_in_memory in(own, o.batch, column_bytes, o.gap, site.memory),
          out(want, o.batch, column_bytes, o.gap, site.memory);
      in.for_each([&](index_t b, std::size_t, index_t row, index_t c, std::byte* p) {
        for (index_t e = 0; e < o.dim; ++e) put<T>(p, e, value_of(b, row, c, e));
      });
      moved("copy", out_bytes, in_bytes, [&] { return plan.forward(in.buffer(), out.buffer(), memory, site.exec); });
      double out_times_y = 0, x_times_din = 0;
      out.for_each([&](index_t b, std::size_t i, index_t row, index_t c, std::byte* p) {
        for (index_t e = 0; e < o.dim; ++e) {
          if (take<T>(p, e) != value_of(b, row, c, e)) fail(where(m, "copy", me, b, i));
          out_times_y += static_cast<double>(take<T>(p, e)) * static_cast<double>(gradient_of(me, b, i, c, e));
        }
      });
      if (!out.surroundings_untouched() || !in.surroundings_untouched()) fail(m.name + ", copy: wrote beside the rows");

      // add
      rows_in_memory dout(want, o.batch, column_bytes, o.gap, site.memory),
          din(own, o.batch, column_bytes, o.gap, site.memory);
      dout.for_each([&](index_t b, std::size_t i, index_t, index_t c, std::byte* p) {
        for (index_t e = 0; e < o.dim; ++e) put<T>(p, e, gradient_of(me, b, i, c, e));
      });
      std::map<std::pair<index_t, index_t>, std::vector<std::pair<int, std::size_t>>> wanters;  // of (row, column)
      for (int r = 0; r < members; ++r) {
        const side& w = wanted[static_cast<std::size_t>(r)];
        for (std::size_t i = 0; i < w.rows.size(); ++i)
          for (index_t c = w.columns.lo; c < w.columns.hi; ++c) wanters[{w.rows[i], c}].push_back({r, i});
      }
      bool once = !wanters.empty();
      for (const auto& [entry, list] : wanters) once = once && (entry.first < 0 || list.size() == 1);
      moved("adjoint", in_bytes, out_bytes,
            [&] { return plan.template adjoint<T>(dout.buffer(), din.buffer(), memory, site.exec); });
      din.for_each([&](index_t b, std::size_t i, index_t row, index_t c, std::byte* p) {
        for (index_t e = 0; e < o.dim; ++e) {
          float sum = 0;
          for (const auto& [r, j] : wanters[{row, c}]) sum += gradient_of(r, b, j, c, e);
          if (take<T>(p, e) != sum) fail(where(m, "adjoint", me, b, i));
          x_times_din += static_cast<double>(value_of(b, row, c, e)) * static_cast<double>(take<T>(p, e));
        }
      });
      if (!din.surroundings_untouched() || !dout.surroundings_untouched())
        fail(m.name + ", adjoint: wrote beside the rows");
      products[k][static_cast<std::size_t>(me)] = out_times_y;
      products[k][static_cast<std::size_t>(members + me)] = x_times_din;

      // inverse
      if (once) {
        rows_in_memory back(own, o.batch, column_bytes, o.gap, site.memory);
        back.for_each([&](index_t, std::size_t, index_t, index_t, std::byte* p) {
          for (index_t e = 0; e < o.dim; ++e) put<T>(p, e, -1);
        });
        moved("inverse", in_bytes, out_bytes,
              [&] { return plan.inverse(out.buffer(), back.buffer(), memory, site.exec); });
        back.for_each([&](index_t b, std::size_t i, index_t row, index_t c, std::byte* p) {
          const bool is_wanted = !wanters[{row, c}].empty();
          for (index_t e = 0; e < o.dim; ++e)
            if (take<T>(p, e) != (is_wanted ? value_of(b, row, c, e) : -1)) fail(where(m, "inverse", me, b, i));
        });
        if (!back.surroundings_untouched()) fail(m.name + ", inverse: wrote beside the rows");
      }
      if (!memory.intact()) fail(m.name + ": wrote beside its memory");
    }
  };
  threads::options world{.ranks = o.world ? o.world : members};
  world.adversary = o.adversary;
  std::string text;
  try {
    on.run(world, body);
  } catch (const std::exception& e) {
    return e.what();
  }
  for (std::vector<double>& list : products) on.combine(list, 0.0);
  // ⟨A x, y⟩ = ⟨x, Aᵀ y⟩, summed over ranks
  for (std::size_t k = 0; k < movements.size(); ++k) {
    double ax_y = 0, x_aty = 0;
    for (int r = 0; r < members; ++r) {
      ax_y += products[k][static_cast<std::size_t>(r)];
      x_aty += products[k][static_cast<std::size_t>(members + r)];
    }
    if (ax_y != x_aty) return movements[k].name + ": the adjoint is none";
  }
  return {};
}

/// Every verb on every layout, and every pair of layouts.
template <class Engine = on_threads>
std::vector<movement_on<Engine>> all_movements(const layouts& every, int ranks, index_t columns = 1) {
  std::vector<movement_on<Engine>> list;
  const auto& all = every.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int root = static_cast<int>(i) % ranks;
    list.push_back(scatter_of<Engine>(all[i], root, columns));
    list.push_back(gather_of<Engine>(all[i], columns));
    list.push_back(gather_to<Engine>(all[i], root, columns));
    list.push_back(broadcast_of<Engine>(all[i].token_count(), root, columns));
    for (const any_layout& to : all) list.push_back(reshard_of<Engine>(all[i], to, columns));
  }
  return list;
}

/// All movements of so many tokens; `turn` chooses batch, columns, strides and the element type.
template <class Engine = on_threads>
std::string broken_movements(index_t tokens, int ranks, int turn) {
  const layouts every(tokens, ranks);
  sweep_options o;
  o.batch = 1 + turn % 2;
  o.columns = 1 + turn % 3;
  o.gap = turn % 2 == 0 ? 0 : 8;
  const auto list = all_movements<Engine>(every, ranks, o.columns);
  if (turn % 3 == 0) return broken<float, Engine>(ranks, list, o);
  if (turn % 3 == 1) return broken<bfloat16, Engine>(ranks, list, o);
  return broken<float16, Engine>(ranks, list, o);
}

}  // namespace exchange_test
