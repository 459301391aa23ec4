// What metal-cpp takes from IOSurface, as declarations.
#pragma once

typedef struct __IOSurface* IOSurfaceRef;
