// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How problems are drawn.
#include <tests/attention/draw.hpp>

#include <deque>
#include <numeric>
#include <vector>

#include <seqpar/seqpar.hpp>

namespace seqpar::test {

/// The same numbers from the same seed, whatever the compiler.
class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed * 0xD1342543DE82EF95u + 0x632BE59BD9B4E019u) {}
  index_t below(index_t n) { return n <= 0 ? 0 : static_cast<index_t>((next() >> 20) % static_cast<std::uint64_t>(n)); }
  index_t between(index_t lo, index_t hi) { return lo + below(hi - lo + 1); }
  bool one_in(index_t n) { return below(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<index_t>(list.size()))];
  }
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (index_t i = static_cast<index_t>(list.size()) - 1; i > 0; --i)
      std::swap(list[static_cast<std::size_t>(i)], list[static_cast<std::size_t>(below(i + 1))]);
  }

 private:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

/// A user's order: i ↦ (factor·i + shift) mod n.
struct strided_order {
  index_t n, factor, shift, inverse;
  index_t from(index_t i) const { return (factor * i + shift) % n; }
  index_t to(index_t g) const { return (g - shift % n + n) % n * inverse % n; }
  friend bool operator==(const strided_order&, const strided_order&) = default;
};

/// Users' masks: asked one by one; with a reach of its own; with intervals and nothing else.
struct speckled {
  index_t salt;
  bool allows(index_t q, index_t k) const {
    return recipe(static_cast<std::uint64_t>(salt), q * 4099 + k) > -0.2f && (q + salt) % 7 != 3;
  }
};
struct every_third {
  index_t offset;
  bool allows(index_t q, index_t k) const { return (k - q - offset) % 3 == 0; }
  template <class F>
  void reach(interval q, F&& f) const {
    for (index_t k = 0; k < 1000; ++k)
      for (index_t i = q.lo; i < q.hi; ++i)
        if (allows(i, k)) {
          f(interval{k, k + 1});
          break;
        }
  }
};
struct apart {
  index_t near, far;
  bool allows(index_t q, index_t k) const { return key_intervals(q).contains(k); }
  interval_pair key_intervals(index_t q) const {
    return make_intervals({std::max<index_t>(0, q - far - near), std::max<index_t>(0, q - far)}, {q, q + near + 1});
  }
};

class problem_drawer::drawing {
 public:
  explicit drawing(std::uint64_t seed) : roll_(seed) {}

  drawn_problem draw() {
    const mesh_shape team = draw_mesh();
    const index_t ranks = team.ring * team.all_to_all;
    const index_t tokens = draw_tokens();
    const any_layout q = draw_layout(tokens, ranks);
    families_ += "/ ";
    const index_t relation = roll_.below(4);
    const any_layout kv = relation < 2 ? q : draw_layout(relation == 2 ? q.token_count() : draw_tokens(), ranks);

    attention_shape n{.batch = roll_.pick<index_t>({1, 1, 1, 2, 3}), .heads = 1, .kv_heads = 1, .head_dim = 1};
    n.kv_heads = roll_.pick<index_t>({1, 1, 2, 2, 3, 4, 5});
    n.heads = n.kv_heads * roll_.pick<index_t>({1, 1, 2, 3, 4, 7});
    n.head_dim = roll_.pick<index_t>({1, 2, 3, 4, 4, 8, 8, 13, 16, 24, 40});
    if (roll_.one_in(2)) n.value_dim = roll_.pick<index_t>({1, 3, 4, 6, 8, 12, 16, 32});
    if (roll_.one_in(3)) {
      n.joint_q = roll_.pick<index_t>({0, 1, 2, 5, 9});
      n.joint_kv = roll_.pick<index_t>({0, 1, 3, 7});
      n.joint_at = roll_.pick({joint_place::front, joint_place::rear});
    }
    const index_t most = roll_.pick<index_t>({100'000, 300'000, 1'000'000});  // keeps the definition in double cheap
    const index_t pairs = (q.token_count() + n.joint_q) * (kv.token_count() + n.joint_kv);
    const auto work = [&] { return n.batch * n.heads * pairs * (n.head_dim + n.v_dim()); };
    if (work() > most) n.batch = 1;
    if (work() > most) n.head_dim = std::min<index_t>(n.head_dim, 8), n.value_dim = std::min<index_t>(n.value_dim, 6);
    if (work() > most) n.heads = n.kv_heads;
    if (work() > most) n.head_dim = std::min<index_t>(n.head_dim, 4), n.value_dim = std::min<index_t>(n.value_dim, 3);
    if (work() > most) n.heads = n.kv_heads = std::min<index_t>(n.kv_heads, 2);

    drawn_problem d{{.q_layout = q,
                     .kv_layout = kv,
                     .mask = draw_mask(q.token_count() + n.joint_q, kv.token_count() + n.joint_kv),
                     .shape = n,
                     .team = team},
                    0,
                    false,
                    ""};
    problem& p = d.p;
    draw_options(p);
    p.memory = roll_.pick({strides::dense, strides::heads_first, strides::packed_qkv, strides::padded});
    if (roll_.one_in(12)) p.adversary = static_cast<std::uint64_t>(roll_.below(1'000'000));
    p.with_dlse = roll_.one_in(3);
    if (roll_.one_in(5)) {
      p.world = static_cast<int>(ranks + roll_.below(3));
      p.ranks.resize(static_cast<std::size_t>(p.world));
      std::iota(p.ranks.begin(), p.ranks.end(), 0);
      roll_.shuffle(p.ranks);
      p.ranks.resize(static_cast<std::size_t>(ranks));
    }
    d.type = roll_.pick({0, 0, 1, 2});
    d.reference = d.type == 0 && roll_.one_in(4);
    d.families = families_ + "mesh " + number(team.ring) + "x" + number(team.all_to_all) +
                 (team.inside == axis::ring ? " ring inside " : " ");
    return d;
  }

 private:
  static std::string number(index_t n) { return std::to_string(n); }

  /// Every R × U of 1 to 8 ranks, either placement.
  mesh_shape draw_mesh() {
    std::vector<mesh_shape> all;
    for (index_t r = 1; r <= 8; ++r)
      for (index_t u = 1; r * u <= 8; ++u)
        for (const axis inside : {axis::all_to_all, axis::ring}) all.push_back({r, u, inside});
    return all[static_cast<std::size_t>(roll_.below(static_cast<index_t>(all.size())))];
  }
  index_t draw_tokens() {
    if (roll_.one_in(8)) return roll_.below(10);
    return roll_.one_in(10) ? roll_.between(65, 200) : roll_.below(71);
  }
  /// A divisor of n.
  index_t draw_divisor(index_t n) {
    index_t d = roll_.between(1, n);
    while (n % d != 0) --d;
    return d;
  }
  std::span<const index_t> draw_bounds(index_t tokens) {
    std::vector<index_t>& bounds = numbers_.emplace_back(1, 0);
    while (bounds.back() < tokens) {
      const index_t length = roll_.one_in(6) ? 0 : roll_.between(1, 1 + tokens / 2);
      bounds.push_back(std::min(tokens, bounds.back() + length));
    }
    return bounds;
  }

  /// f(layout, name) for one of the families that deal any number of tokens.
  template <class F>
  any_layout with_deal(index_t tokens, index_t ranks, F&& f) {
    const index_t kind = roll_.below(3), granule = roll_.pick<index_t>({1, 1, 1, 2, 3, 5});
    const uneven rule = roll_.pick({uneven::first_get_more, uneven::last_takes_rest, uneven::ceil_each});
    const std::string cut = " by " + number(granule) + " rule " + number(static_cast<index_t>(rule));
    if (kind == 0) return f(contiguous{tokens, ranks, granule, rule}, "contiguous" + cut);
    if (kind == 1) return f(zigzag{tokens, ranks, granule, rule}, "zigzag" + cut);
    return f(striped{tokens, ranks, granule}, "striped by " + number(granule));
  }
  template <class L>
  any_layout named(const L& layout, const std::string& name) {
    families_ += name.substr(0, name.find(' ')) + " ";
    return any_layout(layout, name + " [" + number(layout.token_count()) + "]");
  }

  any_layout draw_layout(index_t tokens, index_t ranks) {
    switch (roll_.below(9)) {
      default:
        return with_deal(tokens, ranks, [&](const auto& l, const std::string& name) { return named(l, name); });
      case 3: {
        const uneven rule = roll_.pick({uneven::first_get_more, uneven::last_takes_rest, uneven::ceil_each});
        const index_t granule = roll_.pick<index_t>({1, 2, 3});
        if (roll_.one_in(2))
          return named(paired{contiguous{tokens / 2, ranks, granule, rule}},
                       "paired<contiguous> by " + number(granule));
        return named(paired{zigzag{tokens / 2, ranks, granule, rule}}, "paired<zigzag> by " + number(granule));
      }
      case 4: {
        const index_t h = roll_.between(0, 7), w = roll_.between(1, 7), split = draw_divisor(ranks);
        const index_t frames = h == 0 ? 1 : tokens / (h * w);
        return named(grid{frames, h, w, split, ranks / split}, "grid " + number(frames) + "x" + number(h) + "x" +
                                                                   number(w) + " over " + number(split) + "x" +
                                                                   number(ranks / split));
      }
      case 5: {
        const index_t ring = draw_divisor(ranks);
        const axis inside = roll_.pick({axis::all_to_all, axis::ring});
        return with_deal(tokens, ring, [&](const auto& outer, const std::string& outer_name) {
          return with_deal(0, ranks / ring, [&](const auto& inner, const std::string& inner_name) {
            return named(nested{outer, inner, inside}, "nested<" + outer_name + ", " + inner_name + "> " +
                                                           number(ring) + "x" + number(ranks / ring) +
                                                           (inside == axis::ring ? " ring inside" : ""));
          });
        });
      }
      case 6: {
        const index_t n = std::max<index_t>(tokens, 1);
        strided_order order{n, roll_.between(1, n), roll_.below(n), 0};
        while (std::gcd(order.factor, n) != 1) --order.factor;
        while ((order.inverse * order.factor) % n != 1 % n) ++order.inverse;
        return with_deal(tokens, ranks, [&](const auto& l, const std::string& name) {
          return named(reordered{order, l}, "reordered by " + number(order.factor) + ", " + name);
        });
      }
      case 7: {
        const std::span<const index_t> bounds = draw_bounds(tokens);
        return with_deal(0, ranks, [&](const auto& l, const std::string& name) {
          return named(per_document{bounds, l}, "per_document of " + number(std::ssize(bounds) - 1) + ", " + name);
        });
      }
      case 8:
        return named(draw_segments(tokens, ranks), "segments");
    }
  }

  /// The tokens cut at random, some pieces reversed or split into two interleaved ones, dealt to ranks at random.
  segments draw_segments(index_t tokens, index_t ranks) {
    std::vector<run> pieces;
    for (index_t at = 0; at < tokens;) {
      const index_t n = std::min(tokens - at, roll_.between(1, 9));
      const index_t form = roll_.below(4);
      if (form == 0) pieces.push_back({at + n - 1, n, -1});
      if (form == 1 && n > 1) {
        pieces.push_back({at, (n + 1) / 2, 2});
        pieces.push_back({at + 1, n / 2, 2});
      } else if (form != 0) {
        pieces.push_back({at, n, 1});
      }
      at += n;
    }
    roll_.shuffle(pieces);
    std::vector<run>& runs = runs_.emplace_back();
    std::vector<index_t>& offsets = numbers_.emplace_back(1, 0);
    std::vector<index_t> owner(pieces.size());
    const index_t owners = roll_.one_in(3) ? draw_divisor(ranks) : ranks;  // the others are left empty
    for (index_t& o : owner) o = roll_.below(owners);
    for (index_t r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < pieces.size(); ++i)
        if (owner[i] == r) runs.push_back(pieces[i]);
      offsets.push_back(std::ssize(runs));
    }
    return {runs, offsets};
  }

  any_mask draw_mask(index_t q_tokens, index_t k_tokens) {
    const index_t n = std::max(q_tokens, k_tokens) + 1;
    const first_keys sinks{roll_.between(0, 4)};
    const window near{roll_.below(6), roll_.below(3), roll_.pick({alignment::bottom_right, alignment::top_left})};
    const auto named = [&](const auto& mask, const std::string& name, reaching reach = reaching::exact) {
      families_ += name.substr(0, name.find(' ')) + " ";
      return any_mask(mask, name, reach);
    };
    const auto draw_documents = [&] {
      const std::span<const index_t> q = draw_bounds(roll_.one_in(5) ? q_tokens * 2 / 3 : q_tokens);
      if (q_tokens == k_tokens && !roll_.one_in(4)) return documents{q};
      std::vector<index_t>& k = numbers_.emplace_back();
      for (std::size_t i = 1; i < q.size(); ++i) k.push_back(roll_.between(0, k_tokens + (roll_.one_in(6) ? 5 : 0)));
      std::sort(k.begin(), k.end());
      k.insert(k.begin(), 0);
      return documents{q, k};
    };
    switch (roll_.below(14)) {
      default:
        return with_inner(n, named);
      case 6: {
        const documents docs = draw_documents();
        return named(docs, "documents of " + number(docs.count()));
      }
      case 7:
      case 8: {
        const documents docs = draw_documents();
        return with_inner(n / 3 + 1, [&](const auto& inner, const std::string& name, reaching reach = reaching::exact) {
          return named(seqpar::within{docs, inner}, "within<" + name + "> of " + number(docs.count()), reach);
        });
      }
      case 9: {
        const valid real{roll_.one_in(2) ? roll_.below(n) : unbounded, roll_.below(n)};
        return with_inner(
            n,
            [&](const auto& inner, const std::string& name, reaching reach = reaching::exact) {
              return named(all_of{real, inner}, "all_of<valid, " + name + ">", reach);
            },
            true);
      }
      case 10:
        return with_inner(n, [&](const auto& inner, const std::string& name, reaching reach = reaching::exact) {
          return named(any_of{sinks, inner}, "any_of<first_keys, " + name + ">", reach);
        });
      case 11:
        return named(seqpar::within{draw_documents(), all_of{causal{}, any_of{sinks, near}}},
                     "within<all_of<causal, any_of<first_keys, window>>>");
      case 12:  // up to four intervals a query
        return named(any_of{sinks, apart{roll_.below(3), roll_.between(2, 12)}, window{0, 0}, draw_documents()},
                     "any_of<first_keys, apart, window, documents>");
      case 13:
        return named(all_of{any_of{near, draw_documents()}, any_of{causal{}, sinks}},
                     "all_of<any_of<window, documents>, any_of<causal, first_keys>>");
    }
  }
  /// f(mask, name) for one of the masks that need no tables. A user's reach is left out of all_of: how much wider than
  /// needed that makes it depends on the span, and then no law tells the bytes.
  template <class F>
  any_mask with_inner(index_t n, F&& f, bool for_all_of = false) {
    const alignment align = roll_.pick({alignment::bottom_right, alignment::top_left});
    const std::string corner = align == alignment::top_left ? " top_left" : "";
    const index_t a = roll_.below(n), b = roll_.pick<index_t>({0, 0, 1, 3, a}), c = roll_.between(1, 9);
    const index_t keys = std::max<index_t>(0, n - 1 - b);
    switch (roll_.below(for_all_of ? 12 : 13)) {
      default:
        return f(causal{align}, "causal" + corner);
      case 1:
        return f(full{}, "full");
      case 2:
        return f(window{a, b, align}, "window " + number(a) + "," + number(b) + corner);
      case 3:
        return f(block_causal{c}, "block_causal " + number(c));
      case 4:
        return f(teacher_forcing{n / 2, c}, "teacher_forcing " + number(n / 2) + "," + number(c));
      case 5:
        return f(first_keys{a}, "first_keys " + number(a));
      case 6:
        return f(prefix_lm{a}, "prefix_lm " + number(a));
      case 7:
        return f(valid{roll_.one_in(2) ? a : unbounded, keys}, "valid " + number(a) + "," + number(keys));
      case 8:
        return f(speckled{a + 100}, "speckled (asked) " + number(a), reaching::superset);
      case 9:
        return f(apart{b, a / 2}, "apart (user's intervals) " + number(b) + "," + number(a / 2));
      case 12:
        return f(every_third{a % 3}, "every_third (user's reach) " + number(a % 3), reaching::superset);
      case 10:
        return f(all_of{causal{align}, window{a, c}}, "all_of<causal,window> " + number(a) + corner);
    }
  }

  void draw_options(problem& p) {
    attention_options& o = p.options;
    o.passes = roll_.one_in(12) ? forward_only : forward_backward;
    o.scale = roll_.pick<std::optional<float>>({std::nullopt, std::nullopt, std::nullopt, 0.f, -0.6f, 1.25f});
    o.schedule = roll_.pick({schedule::direct, schedule::pass_along, schedule::all_gather, schedule::double_ring});
    o.window = draw_divisor(p.team.ring);
    o.reuse = roll_.pick({reuse::resend, reuse::saved});
    o.gradients = roll_.pick({write::assign, write::assign, write::add});
    o.joint_gradient = roll_.pick({joint_gradient::complete, joint_gradient::complete, joint_gradient::partial});
    draw_capacity(p);
    if (roll_.one_in(4) && p.shape.joint_q == 0) {
      o.schedule = schedule::direct;
      o.reuse = reuse::resend;
      o.capacity = {};
      o.moves = {roll_.pick({side::keys, side::queries, side::cheaper}), roll_.pick({side::keys, side::queries})};
    } else {
      o.moves = {side::cheaper, side::cheaper};
    }
  }
  void draw_capacity(problem& p) {
    attention_options& o = p.options;
    if (!roll_.one_in(6)) return;
    for (int r = 0; r < p.q_layout.rank_count(); ++r)
      o.capacity.tokens_per_rank =
          std::max({o.capacity.tokens_per_rank, p.q_layout.count_of(r), p.kv_layout.count_of(r)});
    o.capacity.tokens_per_rank += roll_.below(4);
  }

  dice roll_;
  std::string families_;
  std::deque<std::vector<index_t>> numbers_;
  std::deque<std::vector<run>> runs_;
};

problem_drawer::problem_drawer(std::uint64_t seed) : self_(std::make_unique<drawing>(seed)) {}
problem_drawer::~problem_drawer() = default;
drawn_problem problem_drawer::draw() {
  return self_->draw();
}

}  // namespace seqpar::test
