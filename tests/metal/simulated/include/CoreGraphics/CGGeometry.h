// What metal-cpp takes from CoreGraphics, as declarations.
#pragma once

typedef double CGFloat;
struct CGSize {
  CGFloat width, height;
};
