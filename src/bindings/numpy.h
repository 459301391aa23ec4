// Results as NumPy arrays that own their memory. Knows no result.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <utility>
#include <vector>

namespace lily {

template <class T>
nanobind::object to_numpy(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto* memory = new std::vector<T>(std::move(values));
  nanobind::capsule owner(memory,
                          [](void* at) noexcept { delete static_cast<std::vector<T>*>(at); });
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(memory->data(), shape, owner));
}
template <class T>
nanobind::object to_numpy(std::vector<T> values) {
  const size_t size = values.size();
  return to_numpy(std::move(values), {size});
}

}  // namespace lily
