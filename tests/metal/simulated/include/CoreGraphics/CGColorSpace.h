// What metal-cpp takes from CoreGraphics, as declarations.
#pragma once

typedef struct CGColorSpace* CGColorSpaceRef;
