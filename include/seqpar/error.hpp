// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How failure is told: error (thrown while planning, the same on every rank) and status (returned by runs).
#pragma once

#include <concepts>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <seqpar/config.hpp>

namespace seqpar {
inline namespace v0_1 {

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

/// What a run returns: small, no allocation, never thrown.
class [[nodiscard]] status {
 public:
  constexpr status() = default;
  /// `text` and `subject` must be literals; `rank` is the rank at fault (−1: none in particular), `subject` what is
  /// meant.
  constexpr status(errc code, const char* text, int rank = -1, const char* subject = "")
      : code_(code), rank_(rank), text_(text), subject_(subject) {}
  constexpr errc code() const { return code_; }
  constexpr int rank() const { return rank_; }
  constexpr const char* text() const { return text_; }
  constexpr const char* subject() const { return subject_; }
  constexpr bool ok() const { return code_ == errc::ok; }
  constexpr explicit operator bool() const { return ok(); }
  /// "text: subject"
  std::string words() const {
    std::string m = text_;
    if (*subject_) m += std::string(": ") + subject_;
    return m;
  }
  std::string message() const {
    return "[seqpar] " + words() + (rank_ >= 0 ? " (rank " + std::to_string(rank_) + ")" : "");
  }

 private:
  errc code_ = errc::ok;
  int rank_ = -1;
  const char* text_ = "ok";
  const char* subject_ = "";
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

namespace detail {
inline error invalid(const char* where, const std::string& what) {
  return error(errc::invalid_argument, std::string(where) + ": " + what);
}
}  // namespace detail

}  // namespace v0_1
}  // namespace seqpar
