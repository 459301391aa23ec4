// Says that this is no Apple system: metal-cpp then leaves out what a display needs.
#pragma once
