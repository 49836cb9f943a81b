/* What libFuzzer calls with each input: the Python function that FUZZ_TARGET names as module:function gets it as bytes.
 *
 * Any exception that the function lets out is a finding, as a report of a sanitizer is.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(const char *what)
{
    fprintf(stderr, "harness: %s\n", what);
    if (PyErr_Occurred())
        PyErr_Print();
    abort();
}

static PyObject *load_target(void)
{
    const char *name = getenv("FUZZ_TARGET");
    const char *colon = name == NULL ? NULL : strchr(name, ':');
    char module_name[256];
    PyObject *module;
    PyObject *target;
    if (colon == NULL || (size_t)(colon - name) >= sizeof(module_name))
        stop("FUZZ_TARGET must be module:function");
    memcpy(module_name, name, (size_t)(colon - name));
    module_name[colon - name] = '\0';
    Py_InitializeEx(0); /* the fuzzer has its own signal handlers */
    module = PyImport_ImportModule(module_name);
    if (module == NULL)
        stop("the module cannot be imported");
    target = PyObject_GetAttrString(module, colon + 1);
    Py_DECREF(module);
    if (target == NULL)
        stop("the module has no such function");
    return target;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static PyObject *target;
    PyObject *input;
    PyObject *result;
    if (target == NULL)
        target = load_target();
    input = PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
    if (input == NULL)
        stop("no memory for the input");
    result = PyObject_CallFunctionObjArgs(target, input, NULL);
    Py_DECREF(input);
    if (result == NULL)
        stop("the target raised an exception");
    Py_DECREF(result);
    return 0;
}
