/* C that Cython cannot express, used through the .pxd files of this directory. */
#ifndef KAFKAPROD_MACHINE_H
#define KAFKAPROD_MACHINE_H

#include <Python.h>

/* Make a type that only C code of its own module can instantiate: its objects hold pointers that Python cannot supply.
   Cython calls the type's constructor function directly there and does not look at the slots cleared here. */
static inline int kp_forbid_new(PyObject *type_object) {
    PyTypeObject *type = (PyTypeObject *)type_object;
    type->tp_new = NULL;
    type->tp_vectorcall = NULL;
    type->tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
    if (PyDict_DelItemString(type->tp_dict, "__new__") < 0) PyErr_Clear();
    PyType_Modified(type);
    return 0;
}

#endif
