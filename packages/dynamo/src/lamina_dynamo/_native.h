/* Shared by the two halves of the extension: the guard program and the frame evaluation hook. */
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
} Inputs;

typedef struct GuardProgram GuardProgram;
extern PyTypeObject GuardProgram_Type;

/* -1: all guards hold; otherwise the index of the first guard that does not. Never leaves an exception set. */
int guard_program_run(GuardProgram *program, const Inputs *inputs);
int guard_module_init(PyObject *module);

#endif
