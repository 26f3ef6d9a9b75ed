// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A video through sequence-parallel attention: every layout and mesh below gives what one rank gives.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <seqpar/seqpar.hpp>

#include "support/arguments.hpp"
#include "support/patches.hpp"
#include "support/svg.hpp"
#include "support/table.hpp"
#include "support/wanted.hpp"
#include "support/y4m.hpp"

namespace {

using namespace seqpar;
using transport_type = traced<threads::transport>;

constexpr index_t heads = 8, kv_heads = 4, head_dim = 32;
constexpr attention_shape shape{.batch = 1, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
/// Sums of n fp32 terms in another order stray as √n, in units of the tensor's range 1 + max|x|.
double tolerance_of(index_t tokens) {
  return 1e-5 * std::sqrt(1 + static_cast<double>(tokens) / 1000);
}

/// Global tensors, [tokens][heads][dim].
struct sequence {
  index_t tokens = 0;
  std::vector<float> q, k, v, dout;
};
struct answer {
  std::vector<float> out, dq, dk, dv;
  std::vector<index_t> forward_bytes, backward_bytes;  // sent by each rank
  double seconds = 0;
};

sequence project(const demo::patches& p) {
  return {p.tokens(), demo::project(p, heads * head_dim, 1), demo::project(p, kv_heads * head_dim, 2),
          demo::project(p, kv_heads * head_dim, 3), demo::project(p, heads * head_dim, 4)};
}

/// The same frames twice: clean, then with noise, as diffusion training by teacher forcing sees them.
demo::patches with_noisy_copy(demo::patches p) {
  const std::size_t clean = p.values.size();
  for (std::size_t i = 0; i < clean; ++i)
    p.values.push_back(0.8f * p.values[i] + 0.6f * demo::uniform(7, static_cast<index_t>(i)));
  p.frames *= 2;
  return p;
}

/// Deals the sequence, runs forward and backward on `ranks` threads, and puts the results back in global order.
template <class Layout, class Mask>
answer run(const sequence& s, const Layout& layout, const Mask& mask, const mesh_shape& team_shape) {
  const int ranks = layout.rank_count();
  answer a;
  a.out.resize(s.q.size());
  a.dq.resize(s.q.size());
  a.dk.resize(s.k.size());
  a.dv.resize(s.v.size());
  a.forward_bytes.resize(static_cast<std::size_t>(ranks));
  a.backward_bytes.resize(static_cast<std::size_t>(ranks));
  const auto start = std::chrono::steady_clock::now();
  run_ranks(ranks, [&](threads::transport world) {
    flight_record record(world.rank(), world.size());
    const mesh team(transport_type(world, record), team_shape);
    auto plan = plan_attention<float>(team, layout, mask, shape, {.passes = forward_backward});
    host_memory memory(plan.memory());
    plan.prepare(memory, on_host{});

    const int me = team.index();
    const index_t n = plan.q_rows();
    const auto each = [&](std::vector<float>& local, index_t row, auto&& f) {
      for (index_t i = 0; i < n; ++i)
        for (index_t c = 0; c < row; ++c)
          f(local[static_cast<std::size_t>(i * row + c)], static_cast<std::size_t>(layout.global_of(me, i) * row + c));
    };
    const auto take = [&](const std::vector<float>& from, index_t row) {
      std::vector<float> local(static_cast<std::size_t>(n * row));
      each(local, row, [&](float& x, std::size_t g) { x = from[g]; });
      return local;
    };
    const auto give = [&](std::vector<float>& local, std::vector<float>& to) {
      each(local, static_cast<index_t>(to.size()) / s.tokens, [&](float& x, std::size_t g) { to[g] = x; });
    };
    const index_t wide = heads * head_dim, narrow = kv_heads * head_dim;
    std::vector<float> q = take(s.q, wide), k = take(s.k, narrow), v = take(s.v, narrow), dout = take(s.dout, wide);
    std::vector<float> out(q.size()), dq(q.size()), dk(k.size()), dv(v.size()),
        lse(static_cast<std::size_t>(n * heads));
    const auto rows = [&](std::vector<float>& x, index_t h) { return dense_view(x.data(), {1, n, h, head_dim}); };
    const auto numbers = dense_heads(lse.data(), {1, heads, n});

    const index_t agreement_bytes = record.bytes(direction::send);
    check(plan.forward(
        {.q = rows(q, heads), .k = rows(k, kv_heads), .v = rows(v, kv_heads), .out = rows(out, heads), .lse = numbers},
        memory, on_host{}));
    const auto m = static_cast<std::size_t>(me);
    a.forward_bytes[m] = record.bytes(direction::send) - agreement_bytes;
    check(plan.backward({.q = rows(q, heads),
                         .k = rows(k, kv_heads),
                         .v = rows(v, kv_heads),
                         .out = rows(out, heads),
                         .lse = numbers,
                         .dout = rows(dout, heads),
                         .dq = rows(dq, heads),
                         .dk = rows(dk, kv_heads),
                         .dv = rows(dv, kv_heads)},
                        memory, on_host{}));
    a.backward_bytes[m] = record.bytes(direction::send) - agreement_bytes - a.forward_bytes[m];
    give(out, a.out);
    give(dq, a.dq);
    give(dk, a.dk);
    give(dv, a.dv);
  });
  a.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return a;
}

/// The largest difference, and whether every element is within tolerance of its tensor's range.
struct difference {
  double tolerance;
  double largest = 0;
  bool good = true;
  void see(const std::vector<float>& got, const std::vector<float>& want) {
    double range = 0;
    for (float x : want) range = std::max(range, std::abs(static_cast<double>(x)));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
      good = good && d <= tolerance * (1 + range);  // false for NaN
      if (!(d <= largest)) largest = d;
    }
  }
};

class demonstration {
 public:
  demonstration(const demo::arguments& a, const demo::patches& p) : arguments_(a), patches_(p) {}

  template <class Layout, class Mask>
  void show(const std::string& name, const sequence& s, const Layout& layout, const Mask& mask,
            const mesh_shape& team) {
    const answer one = run(s, contiguous{.tokens = s.tokens, .ranks = 1}, mask, {.ring = 1, .all_to_all = 1});
    const answer many = run(s, layout, mask, team);
    difference d{.tolerance = tolerance_of(s.tokens)};
    d.see(many.out, one.out);
    d.see(many.dq, one.dq);
    d.see(many.dk, one.dk);
    d.see(many.dv, one.dv);
    good_ = good_ && d.good;

    const std::vector<demo::member_work> work = demo::count_work(layout, mask, team, shape);
    index_t least = s.tokens, most = 0, pairs = 0, most_pairs = 0, wanted = 0, sent = 0, back = 0;
    std::vector<std::string> legend;
    for (std::size_t m = 0; m < work.size(); ++m) {
      least = std::min(least, work[m].tokens);
      most = std::max(most, work[m].tokens);
      pairs += work[m].pairs;
      most_pairs = std::max(most_pairs, work[m].pairs);
      wanted += work[m].wanted_bytes;
      sent += many.forward_bytes[m];
      back += many.backward_bytes[m];
      legend.push_back("rank " + std::to_string(m) + ": " + demo::count_text(work[m].tokens, "token") + ", " +
                       demo::count_text(work[m].pairs / heads, "pair") + " a head");
    }
    good_ = good_ && sent == wanted;
    const auto ranks = static_cast<index_t>(work.size());
    const double balance = pairs > 0 ? static_cast<double>(most_pairs * ranks) / static_cast<double>(pairs) : 1;
    table_.add({name, std::to_string(least) + "/" + std::to_string(most), demo::fixed_text(balance, 2),
                demo::bytes_text(sent / ranks), demo::bytes_text(wanted / ranks), demo::bytes_text(back / ranks),
                demo::fixed_text(one.seconds, 2), demo::fixed_text(many.seconds, 2), demo::tiny_text(d.largest),
                d.good && sent == wanted ? "equal" : "WRONG"});

    std::string file = name;
    for (char& c : file)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
    const demo::picture_text text{name,
                                  demo::count_text(s.tokens, "token") + " over " + demo::count_text(ranks, "rank"),
                                  legend,
                                  patches_.rows,
                                  patches_.columns,
                                  patches_.brightness};
    const std::string path = arguments_.out + "/" + file + ".svg";
    demo::write_file(path,
                     demo::draw_picture(
                         text, s.tokens, static_cast<int>(ranks), [&](index_t t) { return layout.place_of(t).rank; },
                         [&](index_t q, index_t k) { return mask.allows(q, k); }));
    pictures_.push_back(path);
  }

  int report() const {
    table_.print();
    std::printf(
        "\ntokens: fewest/most on a rank · balance: attended pairs, max/mean · sent, wanted: forward bytes a rank, "
        "mean ·\n"
        "back: bytes a rank sends backward · 1 rank, N ranks: seconds, forward and backward, planning included\n"
        "largest: difference of any element of out, dQ, dK, dV from one rank; tolerance 1e-5 sqrt(1 + tokens/1000) of "
        "1 + max|x|\n\n");
    for (const std::string& p : pictures_) std::printf("picture %s\n", p.c_str());
    std::printf(good_ ? "\nEvery row equals one rank, and only wanted bytes moved.\n"
                      : "\nSomething DIFFERS from one rank.\n");
    return good_ ? 0 : 1;
  }

 private:
  const demo::arguments& arguments_;
  const demo::patches& patches_;
  demo::table table_{
      {"layout, mesh, mask", "tokens", "balance", "sent", "wanted", "back", "1 rank", "N ranks", "largest", ""}};
  std::vector<std::string> pictures_;
  bool good_ = true;
};

int run_demo(const demo::arguments& arguments) {
  const int most = arguments.frames > 0 ? arguments.frames : 16;
  const demo::video video =
      arguments.video.empty() ? demo::moving_scene(160, 90, most) : demo::read_y4m_file(arguments.video, most);
  const int side = std::max(2, std::min(video.height, video.width / 16) / 2 * 2);
  const demo::patches clip = demo::cut_patches(video, side), pair = with_noisy_copy(clip);
  const int P = arguments.ranks, U = P % 2 == 0 ? 2 : 1;
  const index_t n = clip.tokens(), frame = clip.tokens_per_frame();
  std::printf("%s: %s of %d x %d, patches of %d x %d: %s; %lld query heads, %lld kv heads of %lld; %s\n\n",
              arguments.video.empty() ? "a moving scene" : arguments.video.c_str(),
              demo::count_text(clip.frames, "frame").c_str(), video.width, video.height, side, side,
              demo::count_text(n, "token").c_str(), static_cast<long long>(heads), static_cast<long long>(kv_heads),
              static_cast<long long>(head_dim), demo::count_text(P, "rank").c_str());

  const sequence s = project(clip), s2 = project(pair);
  const mesh_shape ring_of_all{.ring = P, .all_to_all = 1}, all_to_all_of_all{.ring = 1, .all_to_all = P};
  const mesh_shape both{.ring = P / U, .all_to_all = U};
  const grid_split tiles = best_split(clip.rows, clip.columns, P);
  demonstration d(arguments, clip);
  d.show("zigzag, ring, causal", s, zigzag{.tokens = n, .ranks = P}, causal{}, ring_of_all);
  d.show("contiguous, all-to-all, full", s, contiguous{.tokens = n, .ranks = P}, full{}, all_to_all_of_all);
  d.show("zigzag in groups, mesh " + std::to_string(P / U) + "x" + std::to_string(U) + ", causal", s,
         nested{zigzag{.tokens = n, .ranks = P / U}, contiguous{.tokens = 0, .ranks = U}}, causal{}, both);
  const teacher_forcing forcing{.clean = n, .block = frame};
  d.show("paired contiguous, ring, teacher forcing", s2, paired{contiguous{.tokens = n, .ranks = P, .granule = frame}},
         forcing, ring_of_all);
  d.show("paired zigzag, ring, teacher forcing", s2, paired{zigzag{.tokens = n, .ranks = P, .granule = frame}}, forcing,
         ring_of_all);
  d.show(
      "grid " + std::to_string(tiles.h) + "x" + std::to_string(tiles.w) + ", ring, block-causal", s,
      grid{.frames = clip.frames, .height = clip.rows, .width = clip.columns, .split_h = tiles.h, .split_w = tiles.w},
      block_causal{.block = frame}, ring_of_all);
  return d.report();
}

}  // namespace

int main(int argc, char** argv) try {
  const demo::arguments arguments = demo::parse_arguments(argc, argv);
  if (arguments.help) return std::printf("%s", demo::usage), 0;
  return run_demo(arguments);
} catch (const demo::bad_arguments& e) {
  return std::fprintf(stderr, "demo: %s\n\n%s", e.what(), demo::usage), 2;
} catch (const demo::bad_input& e) {
  return std::fprintf(stderr, "demo: %s\n", e.what()), 2;
} catch (const std::exception& e) {
  return std::fprintf(stderr, "demo: %s\n", e.what()), 1;
}
