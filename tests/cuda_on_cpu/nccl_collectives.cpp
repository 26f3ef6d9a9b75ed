// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What collectives compute, once every rank is there.
#include <algorithm>
#include <cstring>

#include "tests/cuda_on_cpu/nccl.hpp"

namespace cuda_on_cpu {

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

namespace {

float wide(__half x) {
  return __half2float(x);
}
float wide(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <class T>
T wide(T x) {
  return x;
}

template <class T, class W>
T narrow(W x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16(x);
  } else {
    return static_cast<T>(x);
  }
}

template <class T>
T combine(T x, T y, ncclRedOp_t op) {
  const auto a = wide(x), b = wide(y);
  switch (op) {
    case ncclProd:
      return narrow<T>(a * b);
    case ncclMax:
      return narrow<T>(std::max(a, b));
    case ncclMin:
      return narrow<T>(std::min(a, b));
    default:
      return narrow<T>(a + b);
  }
}

template <class T>
T load(const void* from, std::size_t i) {
  T x;
  std::memcpy(&x, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
  return x;
}

// As a ring does: the sum of each block begins with another rank, so its rounding depends on where an element lies.
template <class T>
std::vector<char> reduce_as(const std::map<int, posted*>& members, std::size_t count, ncclRedOp_t op) {
  std::vector<char> all(count * sizeof(T));
  const auto ranks = members.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = i * ranks / count + 1;
    T sum = load<T>(members.at(static_cast<int>(first % ranks))->what->from, i);
    for (std::size_t k = 1; k < ranks; ++k)
      sum = combine(sum, load<T>(members.at(static_cast<int>((first + k) % ranks))->what->from, i), op);
    if (op == ncclAvg) sum = narrow<T>(wide(sum) / static_cast<decltype(wide(sum))>(ranks));
    std::memcpy(all.data() + i * sizeof(T), &sum, sizeof(T));
  }
  return all;
}

std::vector<char> reduce(const std::map<int, posted*>& members, std::size_t count, ncclDataType_t type,
                         ncclRedOp_t op) {
  switch (type) {
    case ncclInt8:
      return reduce_as<std::int8_t>(members, count, op);
    case ncclUint8:
      return reduce_as<std::uint8_t>(members, count, op);
    case ncclInt32:
      return reduce_as<std::int32_t>(members, count, op);
    case ncclUint32:
      return reduce_as<std::uint32_t>(members, count, op);
    case ncclInt64:
      return reduce_as<std::int64_t>(members, count, op);
    case ncclUint64:
      return reduce_as<std::uint64_t>(members, count, op);
    case ncclFloat16:
      return reduce_as<__half>(members, count, op);
    case ncclFloat32:
      return reduce_as<float>(members, count, op);
    case ncclFloat64:
      return reduce_as<double>(members, count, op);
    default:
      return reduce_as<__nv_bfloat16>(members, count, op);
  }
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

void move_collective(const std::map<int, posted*>& members) {
  const auto& p = *members.begin()->second->what;
  const auto bytes = bytes_of(p.type) * p.count;
  const auto place = [&](void* base, int rank) {
    return static_cast<char*>(base) + bytes * static_cast<unsigned>(rank);
  };
  switch (p.what) {
    case part::verb::all_gather:
      for (const auto& [to, t] : members)
        for (const auto& [from, f] : members) copy(place(t->what->to, from), f->what->from, bytes);
      break;
    case part::verb::broadcast:
      for (const auto& [to, t] : members) copy(t->what->to, members.at(p.peer)->what->from, bytes);
      break;
    case part::verb::all_reduce: {
      const auto sum = reduce(members, p.count, p.type, p.op);
      for (const auto& [to, t] : members) copy(t->what->to, sum.data(), bytes);
      break;
    }
    case part::verb::reduce_scatter: {
      auto sum = reduce(members, p.count * members.size(), p.type, p.op);
      for (const auto& [to, t] : members) copy(t->what->to, place(sum.data(), to), bytes);
      break;
    }
    default:
      break;
  }
}

}  // namespace cuda_on_cpu
