// metal-cpp includes it and takes nothing from it.
#pragma once
