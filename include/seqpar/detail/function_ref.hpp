// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A callable by reference, so that who takes it is compiled once for all of them.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace seqpar {
inline namespace v0_1 {
namespace detail {

template <class Signature>
class function_ref;

/// Calls what it was made from, an object or a function, which must live as long. Source: std::function_ref of C++26.
template <class R, class... A>
class function_ref<R(A...)> {
  union target {
    void* object;
    void (*function)();
  };

 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, function_ref> && std::is_invocable_r_v<R, F&, A...>)
      function_ref(F&& f) {
    using T = std::remove_reference_t<F>;
    if constexpr (std::is_function_v<T>) {
      target_.function = reinterpret_cast<void (*)()>(&f);
      call_ = [](target t, A... a) { return static_cast<R>(reinterpret_cast<T*>(t.function)(std::forward<A>(a)...)); };
    } else {
      target_.object = const_cast<void*>(static_cast<const volatile void*>(std::addressof(f)));
      call_ = [](target t, A... a) { return static_cast<R>((*static_cast<T*>(t.object))(std::forward<A>(a)...)); };
    }
  }
  R operator()(A... a) const { return call_(target_, std::forward<A>(a)...); }

 private:
  target target_;
  R (*call_)(target, A...);
};

}  // namespace detail
}  // namespace v0_1
}  // namespace seqpar
