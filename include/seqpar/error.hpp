// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How failure is told: error (thrown while planning, the same on every rank) and status (returned by runs).
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <seqpar/types.hpp>

namespace seqpar {
inline namespace v0_1 {

namespace detail {

/// A piece of a message: letters, a number, or a flaw with its number. A sentence is a list of them: {"rank ", 3, " has
/// no rows"}; one function for all sentences keeps callers small.
class word {
 public:
  word(const char* letters) : letters_(letters) {}
  word(std::string_view letters) : letters_(letters) {}
  word(const std::string& letters) : letters_(letters) {}
  /// Integers, and what stands for one.
  template <std::convertible_to<long long> I>
  requires(!std::floating_point<I>) word(const I& number)
      : kind_(kind::integer), integer_(static_cast<long long>(number)) {}
  word(double number) : kind_(kind::real), real_(number) {}
  word(const flaw& f) : kind_(f.given == no_number ? kind::letters : kind::flaw), letters_(f.text), integer_(f.given) {}

  void write_to(std::string& out) const {
    out += letters_;
    if (kind_ == kind::flaw) out += ", got ";
    if (kind_ == kind::integer || kind_ == kind::flaw) out += std::to_string(integer_);
    if (kind_ == kind::real) out += std::to_string(real_);
  }

 private:
  enum class kind { letters, integer, real, flaw } kind_ = kind::letters;
  std::string_view letters_{};
  long long integer_ = 0;
  double real_ = 0;
};
using words = std::initializer_list<word>;

[[gnu::cold, gnu::noinline]] inline std::string sentence(words list) {
  std::string s;
  for (const word& w : list) w.write_to(s);
  return s;
}

}  // namespace detail

enum class errc {
  ok,
  invalid_argument,     ///< a shape, option or pointer is wrong
  not_prepared,         ///< run before prepare
  memory_too_small,     ///< a kind of memory has fewer bytes than asked for
  memory_misaligned,    ///< a kind of memory is not aligned to memory_alignment
  overlapping_buffers,  ///< an output overlaps another buffer
  ranks_disagree,       ///< the ranks of one call gave different inputs
  size_mismatch,        ///< a message has other bytes than its receiver expects
  peer_failed,          ///< another rank failed first
  timed_out,            ///< the deadline passed
  deadlock,             ///< all ranks wait for each other
  transport_failed      ///< the engine underneath reported an error
};

/// Numbers that tell more than words: what was given, what was wanted if that is known, and a literal unit, " bytes".
struct amounts {
  index_t wanted = no_number, given = no_number;
  const char* unit = "";

  /// " (4096 bytes wanted, 1024 given)", " (1024 bytes given)" or "".
  std::string words() const {
    if (given == no_number) return {};
    if (wanted == no_number) return detail::sentence({" (", given, unit, " given)"});
    return detail::sentence({" (", wanted, unit, " wanted, ", given, " given)"});
  }
};

/// What a run returns: small, no allocation, never thrown.
class [[nodiscard]] status {
 public:
  constexpr status() = default;
  /// `text` and `subject` must be literals; `rank` is the rank at fault (−1: none in particular), `subject` what is
  /// meant.
  constexpr status(errc code, const char* text, int rank = -1, const char* subject = "", const amounts& n = {})
      : code_(code), rank_(rank), text_(text), subject_(subject), amounts_(n) {}
  constexpr status(errc code, const char* text, const amounts& n) : status(code, text, -1, "", n) {}
  constexpr errc code() const { return code_; }
  constexpr int rank() const { return rank_; }
  constexpr const char* text() const { return text_; }
  constexpr const char* subject() const { return subject_; }
  constexpr index_t wanted() const { return amounts_.wanted; }  ///< or no_number
  constexpr index_t given() const { return amounts_.given; }    ///< or no_number
  constexpr bool ok() const { return code_ == errc::ok; }
  constexpr explicit operator bool() const { return ok(); }
  /// "text: subject (4096 bytes wanted, 1024 given)"
  std::string words() const { return detail::sentence({text_, *subject_ ? ": " : "", subject_, amounts_.words()}); }
  std::string message() const {
    const std::string m = detail::sentence({"[seqpar] ", words()});
    return rank_ < 0 ? m : detail::sentence({m, " (rank ", rank_, ")"});
  }

 private:
  errc code_ = errc::ok;
  int rank_ = -1;
  const char* text_ = "ok";
  const char* subject_ = "";
  amounts amounts_{};
};

/// What planning throws: one sentence with the remedy, "[seqpar] where: what is wrong; what to do".
class error : public std::runtime_error {
 public:
  error(errc code, const std::string& text) : std::runtime_error("[seqpar] " + text), code_(code) {}
  explicit error(const status& s) : std::runtime_error(s.message()), code_(s.code()) {}
  errc code() const { return code_; }

 private:
  errc code_;
};

/// Throws `e`; without exceptions prints it and ends the process.
[[noreturn]] inline void raise(const error& e) {
  SEQPAR_THROW(e);
}

/// Throws unless `s` is ok: for callers of runs who prefer exceptions.
inline void check(const status& s) {
  if (!s.ok()) raise(error(s));
}

namespace detail {
[[gnu::cold, gnu::noinline]] inline error invalid(const char* where, words what) {
  return error(errc::invalid_argument, sentence({where, ": ", sentence(what)}));
}
[[gnu::cold, gnu::noinline]] inline error invalid(const char* where, word what) {
  return invalid(where, words{what});
}
}  // namespace detail

/// A value or the error that kept it from being made; what the try_… forms return.
template <class T>
class [[nodiscard]] result {
 public:
  // Two constructors, so that `return value;` moves for compilers that know no more than C++17's rule (nvcc).
  result(T&& value) : content_(std::in_place_index<0>, std::move(value)) {}
  result(const T& value) requires std::copy_constructible<T> : content_(std::in_place_index<0>, value) {}
  result(error e) : content_(std::in_place_index<1>, std::move(e)) {}
  bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const error& failure() const { return *std::get_if<1>(&content_); }
  /// The value, or the error raised.
  T& value() & {
    if (!ok()) raise(failure());
    return *std::get_if<0>(&content_);
  }
  const T& value() const& {
    if (!ok()) raise(failure());
    return *std::get_if<0>(&content_);
  }
  T&& value() && {
    if (!ok()) raise(failure());
    return std::move(*std::get_if<0>(&content_));
  }

 private:
  std::variant<T, error> content_;
};

/// An error, or none: true when there is one. `if (failure f = plan.try_prepare(…)) report(f->what());`
using failure = std::optional<error>;

}  // namespace v0_1
}  // namespace seqpar
