// What metal-cpp takes from CoreFoundation, as declarations.
#pragma once

#include <cmath>

extern "C" {
typedef double CFTimeInterval;
typedef const struct __CFString* CFStringRef;
CFStringRef __CFStringMakeConstantString(const char* text);
}
