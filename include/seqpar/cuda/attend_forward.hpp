// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention forward on tensor cores.
#pragma once

#include <seqpar/cuda/attend_forward_params.hpp>
#include <seqpar/cuda/store_fragments.hpp>

namespace seqpar {
inline namespace v0_1 {
namespace cuda {

/// out = softmax(scale·q·kᵀ | mask)·v and its state, as forward_call has it, for float16 and bfloat16 by m16n8k16
/// products with fp32 sums (FlashAttention-2, Dao 2023). Per query tile, over the key tiles that it visits:
///   m' = max(m, max s)    p = exp(scale·(s − m'))    sum, acc ← (sum, acc)·exp(scale·(m − m')) + (Σp, round(p)·v)
/// Requires: widths of at most Class, multiples of 8; q, k, v and out rows on 16 bytes.
/// Keys and values come through a ring of slots, K and V by turns, filled by cp.async slots − 1 loads ahead.
/// Numbers: p is rounded to T for the second product, so beyond the fp32 bound |err| ≤ roundoff<T>·Σ|p·v| (and for
/// float16 2⁻²⁵·Σ|v| where p is subnormal). A value that is not finite spoils the rows of query tiles in which some
/// row sees it. Deterministic.
template <class T, class Out, class Class, class Mask, int Architecture = 80>
struct attend_forward {
  using params = forward_params<T, Out, Mask>;

 private:
  static constexpr forward_choice choice = choice_of(Architecture, Class::qk, Class::v).forward;
  static constexpr int qk = Class::qk, v = Class::v, atoms = choice.atoms, warps = choice.warps;
  static constexpr int tile_keys = key_rows_of_tile, rows = choice.rows();
  using sees = sight<Mask>;
  using row_sight = typename sees::row;
  using key_sight = typename sees::key;

  // The block's shared memory: Q | slots | sights of rows | sights of the keys of two tiles | the walk at either | …
  static constexpr int element = static_cast<int>(sizeof(T)), q_bytes = rows * qk * element;
  static constexpr int slot_bytes = tile_keys * (qk > v ? qk : v) * element;
  static constexpr int sight_bytes = (rows * static_cast<int>(sizeof(row_sight)) + 15) / 16 * 16;
  static constexpr int keys_bytes = (tile_keys * static_cast<int>(sizeof(key_sight)) + 15) / 16 * 16;
  static constexpr int bytes_with(int n) {
    return q_bytes + n * slot_bytes + sight_bytes + 2 * (keys_bytes + 16) + 16 + 32 + warps * 16;
  }
  static constexpr int slots_that_fit() {
    for (int n = 4; n > 2; --n)
      if (bytes_with(n) <= shared_budget(Architecture, choice.blocks)) return n;
    return 2;
  }
  static constexpr int slots = slots_that_fit(), slots_at = q_bytes, sights_at = slots_at + slots * slot_bytes,
                       keys_at = sights_at + sight_bytes, walks_at = keys_at + 2 * keys_bytes,
                       kinds_at = walks_at + 2 * 16, part_at = kinds_at + 16, seen_at = part_at + 32;

 public:
  static constexpr int threads = warps * 32, blocks_per_sm = choice.blocks, shared_bytes = bytes_with(slots);
  static constexpr int rows_per_block = rows, packed_rows = rows;

  template <class Hw>
  SEQPAR_DEVICE static void run(Hw& hw, const params& p) {
    const index_t work = p.work(rows);
    for (index_t w = hw.block(); w < work; w += hw.blocks()) {
      const query_part part = query_part::of(p, w, rows);
      if (part.tokens <= 0) continue;
      attend(hw, p, part);
      hw.sync();
    }
  }

 private:
  /// What a tile is to its readers: the end of the walk, all seen, or its number of rows, to be tested.
  static constexpr std::int32_t no_tile = 0, all_seen = -1;

  /// Starts the copies of a tile's keys into a slot and says what the tile is, in one of the two entries.
  template <class Hw>
  SEQPAR_DEVICE static void load_keys(Hw& hw, const params& p, const segment_walk<T>& walk, const query_part& part,
                                      int slot, int entry) {
    const auto kind = hw.template shared<std::int32_t>(kinds_at) + entry;
    if (!walk.more()) {
      if (hw.thread() == 0) *kind = no_tile;
    } else {
      const auto& s = walk.segment();
      const key_tile tile = walk.tile();
      copy_rows<tile_keys, qk, threads>(hw, hw.template shared<T>(slots_at + slot * slot_bytes),
                                        s.k.at(part.batch, tile.row, part.kv), s.k.token, tile.rows, p.qk_dim);
      const bool test = walk.kind() != cover::all || tile.rows < tile_keys;
      if (hw.thread() == 0) *kind = test ? tile.rows : all_seen;
      if (test && hw.thread() < tile_keys)
        hw.template shared<key_sight>(keys_at + entry * keys_bytes)[hw.thread()] =
            sees::key_of(s.keys.position_of(tile, hw.thread() < tile.rows ? hw.thread() : 0), p.mask);
    }
    hw.commit_copies();
  }
  template <class Hw>
  SEQPAR_DEVICE static void load_values(Hw& hw, const params& p, const segment_walk<T>& walk, const query_part& part,
                                        int slot) {
    if (walk.more()) {
      const auto& s = walk.segment();
      const key_tile tile = walk.tile();
      copy_rows<tile_keys, v, threads>(hw, hw.template shared<T>(slots_at + slot * slot_bytes),
                                       s.v.at(part.batch, tile.row, part.kv), s.v.token, tile.rows, p.v_dim);
    }
    hw.commit_copies();
  }

  /// The load that comes `Ahead` after that of the keys of the tile of this entry. The walk stands in the entry of the
  /// tile to be loaded; behind its values, thread 0 puts the next into the other one.
  template <int Ahead, class Hw>
  SEQPAR_DEVICE static void load(Hw& hw, const params& p, int slot, int entry) {
    const int at = Ahead / 2 % 2 == 0 ? entry : 1 - entry;
    const auto walks = hw.template shared<quad>(walks_at);
    segment_walk<T> walk(p.segments, p.segment_count, walks[at]);
    const query_part part = query_part::saved(hw.template shared<std::int32_t>(part_at));
    if constexpr (Ahead % 2 == 0) {
      load_keys(hw, p, walk, part, slot, at);
    } else {
      load_values(hw, p, walk, part, slot);
      if (hw.thread() == 0) {
        if (walk.more()) walk.next(part.tile);
        walks[1 - at] = walk.saved();
      }
    }
  }

  /// The first slots − 1 loads.
  template <class Hw>
  SEQPAR_DEVICE static void load_first(Hw& hw, const params& p, const query_part& part) {
    segment_walk<T> walk(p.segments, p.segment_count, part.tile);
    load_keys(hw, p, walk, part, 0, 0);
    if constexpr (slots > 2) {
      load_values(hw, p, walk, part, 1);
      if (walk.more()) walk.next(part.tile);
    }
    if constexpr (slots > 3) load_keys(hw, p, walk, part, 2, 1);
    if (hw.thread() == 0) {
      hw.template shared<quad>(walks_at)[slots > 2 ? 1 : 0] = walk.saved();
      part.save(hw.template shared<std::int32_t>(part_at));
    }
  }

  /// A warp's rows: thread's rows are row(a, h) = first + 16·a + 8·h, its columns 8·n + 2·(lane % 4) + {0, 1}.
  struct registers {
    float acc[times<atoms>][times<v / 8>][4];
    float max[times<atoms>][2], sum[times<atoms>][2];  ///< max of q·k·(sign of scale); sum: this thread's columns only
  };

  template <class Hw>
  SEQPAR_DEVICE static void attend(Hw& hw, const params& p, const query_part& part) {
    const auto q = hw.template shared<T>(0);
    if (part.heads == 1)
      copy_rows<rows, qk, threads>(hw, q, p.q.at(part.batch, part.first, part.head), p.q.token, part.tokens, p.qk_dim);
    else
      copy_heads(hw, q, p, part);
    load_first(hw, p, part);
    if (hw.thread() < rows)
      hw.template shared<row_sight>(sights_at)[hw.thread()] =
          sees::row_of(p.queries, part.token_of(hw.thread()), p.mask);

    registers r;
    start(hw, p, part, scale_of(p), r);
    if (p.scale < 0) {  // into q, so that a maximum of q·k is one of scale·q·k
      hw.template wait_copies<slots - 2>();
      hw.sync();
      negate_rows(hw, q);
    }

    int slot = 0, entry = 0;
    for (;;) {
      hw.template wait_copies<slots - 2>();
      hw.sync();
      const std::int32_t kind = hw.template shared<std::int32_t>(kinds_at)[entry];
      if (kind == no_tile) break;
      load<slots - 1>(hw, p, slot == 0 ? slots - 1 : slot - 1, entry);
      float s[times<atoms>][times<tile_keys / 8>][4];
      scores(hw, q, hw.template shared<T>(slots_at + slot * slot_bytes), p.qk_dim, s);
      if (kind != all_seen) hide(hw, p.mask, kind, entry, s);
      weigh(hw, scale_of(p) * log2_of_e, s, r);

      hw.template wait_copies<slots - 2>();
      hw.sync();
      load<slots>(hw, p, slot, entry);
      slot = slot + 1 == slots ? 0 : slot + 1;
      const auto values = hw.template shared<T>(slots_at + slot * slot_bytes);
      if (kind != all_seen) clear_unseen(hw, values);
      add_values(hw, values, s, r);
      slot = slot + 1 == slots ? 0 : slot + 1;
      entry = 1 - entry;
    }
    finish(hw, p, query_part::saved(hw.template shared<std::int32_t>(part_at)), scale_of(p), r);
  }

  /// As copy_rows, from rows of several heads.
  template <class Hw, class Place>
  SEQPAR_DEVICE static void copy_heads(Hw& hw, Place q, const params& p, const query_part& part) {
    for (int i = hw.thread(); i < rows * (qk / 8); i += threads) {
      const int row = i / (qk / 8), chunk = i - row * (qk / 8);
      const T* from = p.q.at(part.batch, part.token_of(row), part.head_of(row)) + chunk * 8;
      hw.copy_async(q + swizzled<qk>::at(row, chunk), reinterpret_cast<const quad*>(from),
                    row < part.rows() && chunk * 8 < p.qk_dim);
    }
  }

  /// What fp32 makes of |scale|: for 0, so little that all weights are the same.
  SEQPAR_DEVICE static float scale_of(const params& p) { return ::fmaxf(::fabsf(p.scale), least_scale); }

  template <class Hw, class Place>
  SEQPAR_DEVICE static void negate_rows(Hw& hw, Place q) {
    const auto words = q.template cast<std::uint32_t>();
    for (int i = hw.thread(); i < q_bytes / 4; i += threads) words[i] = words[i] ^ 0x80008000u;
  }

  /// From the state, or nothing seen.
  template <class Hw>
  SEQPAR_DEVICE static void start(Hw& hw, const params& p, const query_part& part, float scale, registers& r) {
    each<atoms>([&](int a) {
      each<2>([&](int h) {
        r.max[a][h] = -infinite;
        r.sum[a][h] = 0;
      });
      each<v / 8>([&](int n) { each<4>([&](int e) { r.acc[a][n][e] = 0; }); });
    });
    if (p.in == state_in::none) return;
    each<atoms>([&](int a) {
      each<2>([&](int h) {
        const int row = row_of(hw, a, h);
        if (row >= part.rows()) return;
        const index_t place = part.place(p, row);
        r.max[a][h] = p.max[place] / scale;
        if ((hw.lane() & 3) == 0) r.sum[a][h] = p.sum[place];
        const float* acc = p.acc + place * p.v_dim + (hw.lane() & 3) * 2;
        each<v / 8>([&](int n) {
          if (n * 8 >= p.v_dim) return;
          r.acc[a][n][2 * h] = acc[n * 8];
          r.acc[a][n][2 * h + 1] = acc[n * 8 + 1];
        });
      });
    });
  }

  template <class Hw>
  SEQPAR_DEVICE static int row_of(Hw& hw, int atom, int half) {
    return (hw.warp() * atoms + atom) * 16 + half * 8 + (hw.lane() >> 2);
  }

  /// s = q·kᵀ over the true columns. The loop is not unrolled: what loads ahead costs registers.
  template <class Hw, class Place>
  SEQPAR_DEVICE static void scores(Hw& hw, Place q, Place k, int columns,
                                   float (&s)[times<atoms>][times<tile_keys / 8>][4]) {
    each<atoms>([&](int a) { each<tile_keys / 8>([&](int n) { each<4>([&](int e) { s[a][n][e] = 0; }); }); });
    const auto q_at = fragment<qk>::by_row(hw.lane()), k_at = fragment<qk>::by_column(hw.lane());
    const int first = hw.warp() * atoms * 16;
    for (int step = 0; step * 16 < columns; ++step) {
      std::uint32_t x[times<atoms>][4];
      each<atoms>([&](int a) { hw.template load_matrices<T>(x[a], q + q_at.at(first + a * 16, step)); });
      each<tile_keys / 16>([&](int n) {
        std::uint32_t y[4];
        hw.template load_matrices<T>(y, k + k_at.at(n * 16, step));
        const std::uint32_t low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
        each<atoms>([&](int a) {
          hw.template mma<T>(s[a][2 * n], x[a], low);
          hw.template mma<T>(s[a][2 * n + 1], x[a], high);
        });
      });
    }
  }

  /// Scores of keys that a row does not see become −∞; leaves word of the keys that some row of this warp gives a
  /// weight.
  template <class Hw>
  SEQPAR_DEVICE static void hide(Hw& hw, const Mask& mask, int tile_rows, int entry,
                                 float (&s)[times<atoms>][times<tile_keys / 8>][4]) {
    const auto rows_seen = hw.template shared<row_sight>(sights_at);
    const int lane = (hw.lane() & 3) * 2, there = tile_rows - lane;
    const auto keys = hw.template shared<key_sight>(keys_at + entry * keys_bytes) + lane;
    row_sight row[times<atoms>][2];
    each<atoms>([&](int a) { each<2>([&](int h) { row[a][h] = rows_seen[row_of(hw, a, h)]; }); });
    std::int32_t seen = 0;
    each<tile_keys / 8>([&](int n) {
      each<2>([&](int e) {
        const key_sight key = keys[n * 8 + e];
        const int is_there = static_cast<int>(n * 8 + e < there);
        float max = -infinite;
        each<atoms>([&](int a) {
          each<2>([&](int h) {
            float& x = s[a][n][2 * h + e];
            x = (is_there & static_cast<int>(sees::see(row[a][h], key, mask))) != 0 ? x : -infinite;
            max = ::fmaxf(max, x);
          });
        });
        seen |= max != -infinite || is_there == 0 ? 1 << (n * 2 + e) : 0;  // what is not there is 0 already
      });
    });
    each<3>([&](int i) { seen |= hw.shuffle_xor(seen, 4 << i); });
    if (hw.lane() < 4) hw.template shared<std::int32_t>(seen_at)[hw.warp() * 4 + hw.lane()] = seen;
  }

  /// Values that no row sees become 0: they may be anything, and 0·NaN is no 0.
  template <class Hw, class Place>
  SEQPAR_DEVICE static void clear_unseen(Hw& hw, Place values) {
    const auto seen = hw.template shared<std::int32_t>(seen_at);
    // Thread's keys: those of column pair thread % 4. One word of the 16 bits of each warp.
    std::int32_t mine = 0;
    for (int w = 0; w < warps; ++w) mine |= seen[w * 4 + (hw.lane() & 3)];
    if (!hw.any(mine != 0xffff)) return;  // the same in every warp
    constexpr int chunks = v / 8;
    for (int bit = 0; bit < 16; ++bit)
      if ((mine >> bit & 1) == 0) {
        const int row = bit / 2 * 8 + (hw.lane() & 3) * 2 + bit % 2;
        for (int c = hw.thread() >> 2; c < chunks; c += threads / 4)
          values.template cast<quad>()[row * chunks + c] = quad{};
      }
    hw.sync();
  }

  /// s becomes p; max, sum and acc go along.
  template <class Hw>
  SEQPAR_DEVICE static void weigh(Hw& hw, float scale, float (&s)[times<atoms>][times<tile_keys / 8>][4],
                                  registers& r) {
    float shrink[times<atoms>][2];
    bool changed = false;
    each<atoms>([&](int a) {
      each<2>([&](int h) {
        float max = r.max[a][h];
        each<tile_keys / 8>([&](int n) { max = ::fmaxf(max, ::fmaxf(s[a][n][2 * h], s[a][n][2 * h + 1])); });
        max = ::fmaxf(max, hw.shuffle_xor(max, 1));
        max = ::fmaxf(max, hw.shuffle_xor(max, 2));
        const float from = max == -infinite ? 0 : max;  // a row that sees nothing so far
        shrink[a][h] = hw.exp2((r.max[a][h] - from) * scale);
        changed = changed || r.max[a][h] != max;
        r.max[a][h] = max;
        const float base = from * scale;
        float sum = 0;
        each<tile_keys / 8>([&](int n) {
          each<2>([&](int e) {
            float& x = s[a][n][2 * h + e];
            x = hw.exp2(x * scale - base);
            sum += x;
          });
        });
        r.sum[a][h] = r.sum[a][h] * shrink[a][h] + sum;
      });
    });
    if (hw.any(changed))
      each<atoms>(
          [&](int a) { each<v / 8>([&](int n) { each<4>([&](int e) { r.acc[a][n][e] *= shrink[a][e / 2]; }); }); });
  }

  /// acc += round(p)·v
  template <class Hw, class Place>
  SEQPAR_DEVICE static void add_values(Hw& hw, Place values, const float (&p)[times<atoms>][times<tile_keys / 8>][4],
                                       registers& r) {
    const auto at = fragment<v>::by_row(hw.lane());
    each<tile_keys / 16>([&](int step) {
      std::uint32_t x[times<atoms>][4];
      each<atoms>([&](int a) {
        each<4>([&](int i) {
          x[a][i] = hw.template pack<T>(p[a][2 * step + i / 2][i % 2 * 2], p[a][2 * step + i / 2][i % 2 * 2 + 1]);
        });
      });
      each<v / 16>([&](int n) {
        std::uint32_t y[4];
        hw.template load_matrices_transposed<T>(y, values + at.at(step * 16, n));
        const std::uint32_t low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
        each<atoms>([&](int a) {
          hw.template mma<T>(r.acc[a][2 * n], x[a], low);
          hw.template mma<T>(r.acc[a][2 * n + 1], x[a], high);
        });
      });
    });
  }

  /// Into the state, or out and lse.
  template <class Hw>
  SEQPAR_DEVICE static void finish(Hw& hw, const params& p, const query_part& part, float scale, registers& r) {
    const bool carry = p.out_kind == state_out::carry;
    each<atoms>([&](int a) {
      each<2>([&](int h) {
        float sum = r.sum[a][h] + hw.shuffle_xor(r.sum[a][h], 1);
        sum += hw.shuffle_xor(sum, 2);
        const float max = r.max[a][h] * scale;
        const int row = row_of(hw, a, h);
        const bool there = row < part.rows();
        const index_t place = part.place(p, row);
        const std::int32_t token = part.token_of(row), head = part.head_of(row);
        if (there && (hw.lane() & 3) == 0) {
          if (carry) {
            p.max[place] = max;
            p.sum[place] = sum;
          } else {
            p.lse.at(part.batch, head, token) = max + ::logf(sum);  // nothing seen: −∞ + −∞
          }
        }
        if (carry) {
          store_row<v>(hw, r.acc[a], h, 1, there, p.acc + place * p.v_dim, p.v_dim);
        } else {
          const float weight = sum == 0 ? 0 : 1 / sum;
          store_row<v>(hw, r.acc[a], h, weight, there, p.out.at(part.batch, token, head), p.v_dim);
        }
      });
    });
  }
};

}  // namespace cuda
}  // namespace v0_1
}  // namespace seqpar
