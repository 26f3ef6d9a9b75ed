// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Names of the errors that the stand-in returns.
#include <cuda_runtime_api.h>

namespace {

struct error_text {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr error_text texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported", "peer access is not supported"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "not permitted while a stream captures"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "an earlier error ended the capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge", "the operation would merge two captures"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "the capture did not begin in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "work that did not rejoin the captured stream"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation", "a capture may not wait for work outside"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit", "the legacy stream would wait for a capture"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "the event was recorded in a capture"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread", "another thread began this capture"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const error_text& text_of(cudaError_t error) {
  for (const auto& t : texts)
    if (t.error == error) return t;
  return texts[sizeof(texts) / sizeof(*texts) - 1];
}

}  // namespace

extern "C" const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}
extern "C" const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  return text_of(error).text;
}
