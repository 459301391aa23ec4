// How messages are sent; called through the type of the method, as on a Mac.
#pragma once

#include <objc/runtime.h>

extern "C" {
void objc_msgSend();
void objc_msgSend_stret();
void objc_msgSend_fpret();
}
