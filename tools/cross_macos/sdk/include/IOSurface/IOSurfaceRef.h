// The few names of Apple's header of this name that metal-cpp reads. For cross-building alone.
#pragma once
typedef struct __IOSurface* IOSurfaceRef;
