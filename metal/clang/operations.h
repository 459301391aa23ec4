// What a simdgroup's reductions apply to two values. Knows no target.
#pragma once

namespace metal {

namespace operations {
struct Sum {
  template <class T>
  METAL_FUNC static T apply(T a, T b) {
    return a + b;
  }
};
struct Product {
  template <class T>
  METAL_FUNC static T apply(T a, T b) {
    return a * b;
  }
};
struct Max {
  template <class T>
  METAL_FUNC static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct Min {
  template <class T>
  METAL_FUNC static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct And {
  template <class T>
  METAL_FUNC static T apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  METAL_FUNC static T apply(T a, T b) {
    return a | b;
  }
};
}  // namespace operations

}  // namespace metal
