// The part of Objective-C's runtime that metal-cpp names, for the simulated Metal of the tests;
// ../../objc_runtime.cpp has the bodies.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
typedef struct objc_class* Class;
struct objc_object {
  Class isa;
};
typedef struct objc_object* id;
typedef struct objc_selector* SEL;
typedef struct Protocol Protocol;

SEL sel_registerName(const char* name);
Class objc_lookUpClass(const char* name);
Protocol* objc_getProtocol(const char* name);
}
