// The definitions of metal-cpp, once for the whole library. See metal_cpp.h.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION

#include "device/metal/metal_cpp.h"
