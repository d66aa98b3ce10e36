/* Shared by the parts of the extension: the guard program, the frame evaluation hook, and calls of what follows a break. */
#ifndef LAMINA_NATIVE_H
#define LAMINA_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* What the paths of a guard program start from. `args` are the arguments of the frame in the order of the code object's variable names. */
typedef struct {
    PyObject **args;
    int nargs;
    PyObject *closure; /* tuple of cells or NULL */
    PyObject *globals;
    PyObject *builtins;
    int owned; /* `args` are the frame's own slots */
} Inputs;

typedef struct GuardProgram GuardProgram;
extern PyTypeObject GuardProgram_Type;

/* -1: all guards hold; otherwise the index of the first guard that does not. Never leaves an exception set. Where all hold and `given` is not NULL,
 * `*given` becomes a tuple of the values that the compiled code takes from here instead of fetching them itself (new reference), NULL if it takes
 * none. GUARD_NO_MEMORY: that tuple could not be made. */
enum { GUARD_NO_MEMORY = INT32_MAX };
int guard_program_run(GuardProgram *program, const Inputs *inputs, PyObject **given);
int guard_program_gives(const GuardProgram *program);
int guard_module_init(PyObject *module);

#if defined(__GNUC__)
#define LAMINA_THREAD_LOCAL __thread
#else
#define LAMINA_THREAD_LOCAL _Thread_local
#endif

/* Slots of a caller whose references go once the frame that is called has begun. */
typedef struct {
    PyObject **slots; /* NULL: none */
    Py_ssize_t n;
    PyObject **more; /* another slot, or NULL */
    PyObject *code, **args; /* of the call: making a frame may collect garbage, which runs other frames */
    Py_ssize_t n_args;
} Handed;
extern LAMINA_THREAD_LOCAL Handed handed;
void take_handed(PyObject *code, PyObject **locals);
/* Call a Python function with arguments that are its own from its first instruction on: the slots then hold None. */
PyObject *call_handing_over(PyObject *function, PyObject **slots, Py_ssize_t n);
/* The same where the references that go are not the arguments' own: those in `slots` and in `more`. */
PyObject *call_handing_over_from(PyObject *function, PyObject **args, Py_ssize_t n_args, PyObject **slots, Py_ssize_t n, PyObject **more);
int resume_module_init(PyObject *module);

#endif
