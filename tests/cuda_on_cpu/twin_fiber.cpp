// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/cuda_on_cpu/twin_fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SEQPAR_TWIN_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SEQPAR_TWIN_ASAN 1
#endif

extern "C" {
#ifdef SEQPAR_TWIN_ASAN
void __sanitizer_start_switch_fiber(void** save, const void* bottom, std::size_t bytes);
void __sanitizer_finish_switch_fiber(void* save, const void** bottom, std::size_t* bytes);
#endif
}

#ifdef __x86_64__
// What the caller of a function may rely on is pushed, the stack is changed, and the other's is popped.
extern "C" void seqpar_twin_switch(void** save, void* to);
asm(R"(
.text
.globl seqpar_twin_switch
.type seqpar_twin_switch, @function
seqpar_twin_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size seqpar_twin_switch, .-seqpar_twin_switch
)");
#else
#include <ucontext.h>
#endif

namespace seqpar::twin {

namespace {
constexpr std::size_t canary_bytes = 64;
constexpr unsigned char canary = 0x5a;
thread_local fiber* arriving = nullptr;  // the fiber that is being switched to

// TSan is told nothing: a block's threads are one thread to it, which is the order there is. (Its fibers would cost 3
// µs a switch. Without them the call stacks of its reports are mixed, the place of the access is right.)
void change_stack(void** from, void* to) {
#ifdef __x86_64__
  seqpar_twin_switch(from, to);
#else
  swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
#endif
}
}  // namespace

fiber::fiber() {
#ifndef __x86_64__
  sp_ = new ucontext_t;
#endif
}

fiber::fiber(std::size_t bytes, entry run) : run_(run), bytes_(bytes) {
  void* const stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) throw std::bad_alloc();
  bottom_ = stack;
  std::memset(stack, canary, canary_bytes);
#ifdef __x86_64__
  // Stacks begin at different cache sets. `start` is returned to with a stack that a call could have left.
  const std::size_t colour = reinterpret_cast<std::uintptr_t>(this) / 64 % 29 * 64;
  auto** top = reinterpret_cast<void**>(static_cast<char*>(stack) + bytes - 256 - colour);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&fiber::start);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  sp_ = top;
#else
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  makecontext(context, &fiber::start, 0);
  sp_ = context;
#endif
}

fiber::~fiber() {
  if (run_ != nullptr) {
    if (fake_stack_ != nullptr) {  // ASan's goes when the fiber says that it ends
      fiber here;
      ending_ = true;
      switch_to(here, *this);
    }
    munmap(const_cast<void*>(bottom_), bytes_);
  }
#ifndef __x86_64__
  delete static_cast<ucontext_t*>(sp_);
#endif
}

bool fiber::whole() const {
  const auto* byte = static_cast<const unsigned char*>(bottom_);
  for (std::size_t i = 0; i < canary_bytes; ++i)
    if (byte[i] != canary) return false;
  return true;
}

void fiber::start() {
  fiber& self = *arriving;
  self.arrive();
  while (!self.ending_) self.run_(self.argument);
  fiber& last = *self.from_;
  last.from_ = &self;
  self.leave(nullptr, last);
  change_stack(&self.sp_, last.sp_);
}

// The sanitizers are told where they go, and where they are; and tell where the thread's own stack lies when it is
// left.
void fiber::leave([[maybe_unused]] void** fake_stack, [[maybe_unused]] const fiber& to) const {
#ifdef SEQPAR_TWIN_ASAN
  __sanitizer_start_switch_fiber(fake_stack, to.bottom_, to.bytes_);
#endif
}
void fiber::arrive() {
#ifdef SEQPAR_TWIN_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &from_->bottom_, &from_->bytes_);
#endif
}

void fiber::switch_to(fiber& from, fiber& to) {
  if (&from == &to) return;
  arriving = &to;
  to.from_ = &from;
  from.leave(&from.fake_stack_, to);
  change_stack(&from.sp_, to.sp_);
  from.arrive();
}

std::vector<std::unique_ptr<fiber>>& resting_fibers(std::size_t count, fiber::entry run) {
  thread_local std::vector<std::unique_ptr<fiber>> fibers;
  constexpr std::size_t stack_bytes = std::size_t{1} << 18;
  while (fibers.size() < count) fibers.push_back(std::make_unique<fiber>(stack_bytes, run));
  return fibers;
}

}  // namespace seqpar::twin
