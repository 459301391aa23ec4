// What metal-cpp takes from Mach, as declarations.
#pragma once

typedef int kern_return_t;
typedef unsigned task_id_token_t;
