// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A libcuda for devices that are only described: it takes every kernel that cuDNN compiles, so that plans are finished
// and tell their workspace, and refuses everything else.
namespace {
constexpr int yes = 0, no_device = 100;
char kernel;
int give(void** handle) {
  *handle = &kernel;
  return yes;
}
}  // namespace

#define REFUSED(name) \
  int name() {        \
    return no_device; \
  }

extern "C" {
int cuLibraryLoadData(void** library) {
  return give(library);
}
int cuLibraryGetKernel(void** found) {
  return give(found);
}
int cuKernelGetFunction(void** found) {
  return give(found);
}
int cuLibraryUnload() {
  return yes;
}
int cuKernelSetAttribute() {
  return yes;
}
int cuFuncSetAttribute() {
  return yes;
}
int cuKernelGetAttribute(int* value) {
  return *value = 0, yes;
}
int cuDriverGetVersion(int* version) {
  return *version = 13000, yes;
}
int cuGetErrorName(int, const char** text) {
  return *text = "no device", yes;
}
int cuGetErrorString(int, const char** text) {
  return *text = "the device is only described", yes;
}
REFUSED(cuInit)
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetDevice)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetAttribute)
REFUSED(cuDeviceGetCount)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate)
REFUSED(cuLinkDestroy)
REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuStreamGetCtx)
}
