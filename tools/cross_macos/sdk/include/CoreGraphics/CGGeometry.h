// The few names of Apple's header of this name that metal-cpp reads. For cross-building alone.
#pragma once
typedef double CGFloat;
typedef struct CGPoint {
  CGFloat x, y;
} CGPoint;
typedef struct CGSize {
  CGFloat width, height;
} CGSize;
