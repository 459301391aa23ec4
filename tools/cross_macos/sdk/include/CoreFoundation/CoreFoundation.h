// The few names of Apple's header of this name that metal-cpp reads. For cross-building alone.
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
typedef double CFTimeInterval;
typedef const struct __CFString* CFStringRef;
CFStringRef __CFStringMakeConstantString(const char* text);
#ifdef __cplusplus
}
#endif
