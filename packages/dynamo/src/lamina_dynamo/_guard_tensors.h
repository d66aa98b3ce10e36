/* Tensors and the global state of torch as the guard program reads them: through libtorch, without Python. */

typedef int32_t (*get_i32)(void *, int32_t *);
typedef int32_t (*get_i64)(void *, int64_t *);
typedef int32_t (*get_i64s)(void *, int64_t **);

static struct {
    int tensors; /* tensor metadata can be read */
    int storages; /* storage identity can be read */
    int state; /* global state can be read */
    int key_word, storage_word;
    int size_word; /* number of dimensions, then five sizes, then five strides (more dimensions lie elsewhere) */
    get_i64 dim, offset;
    get_i64s sizes, strides;
    get_i32 dtype, device_index;
    int32_t (*data_ptr)(void *, void **);
    int (*requires_grad)(const void *);
    int (*grad_mode)(void);
    int (*inference_mode)(void);
    int8_t (*default_dtype)(void);
    void *(*context)(void);
    int (*deterministic)(const void *);
    int (*deterministic_warn)(const void *);
    int64_t (*function_stack)(void);
    int (*function_disabled)(void);
    int (*autocast_enabled)(int8_t);
    int8_t (*autocast_dtype)(int8_t);
    int (*autocast_cache)(void);
    void *c10;
} lib;

/* at::Tensor sits behind the two words of the object header; it is one pointer, to the TensorImpl. */
#define TENSOR_HANDLE(obj) ((void *)((char *)(obj) + sizeof(PyObject)))
#define TENSOR_IMPL(obj) (*(uint64_t **)TENSOR_HANDLE(obj))

static int tensor_numbers(PyObject *tensor, int64_t *dim, const int64_t **sizes, const int64_t **strides) {
    if (lib.size_word) {
        const int64_t *words = (const int64_t *)TENSOR_IMPL(tensor) + lib.size_word;
        if (words[0] <= 5) {
            *dim = words[0];
            *sizes = words + 1;
            *strides = words + 6;
            return 1;
        }
    }
    void *handle = TENSOR_HANDLE(tensor);
    return lib.dim(handle, dim) == 0 && lib.sizes(handle, (int64_t **)sizes) == 0 && lib.strides(handle, (int64_t **)strides) == 0;
}

static __thread uint64_t *tls_dispatch_keys;

static uint64_t *dispatch_tls(void) {
    if (tls_dispatch_keys == NULL)
        tls_dispatch_keys = (uint64_t *)dlsym(lib.c10, "_ZN3c104impl26raw_local_dispatch_key_setE");
    return tls_dispatch_keys;
}

typedef struct {
    uint64_t included, excluded;
    int64_t function_stack;
    int function_disabled;
    int8_t grad, inference, default_dtype, deterministic, deterministic_warn, autocast_cache;
    int8_t autocast[2], autocast_dtype[2], dual_level;
} State;

/* torch.autograd.forward_ad keeps its level in a global of that module: -1 outside */
static PyObject *forward_ad_globals, *forward_ad_level;

static int8_t dual_level(void) {
    PyObject *level = forward_ad_globals ? PyDict_GetItem(forward_ad_globals, forward_ad_level) : NULL;
    return level != NULL && PyLong_CheckExact(level) ? (int8_t)(PyLong_AsLong(level) + 1) : 0;
}

static void read_state(State *s) {
    memset(s, 0, sizeof(*s));
    uint64_t *keys = dispatch_tls();
    s->included = keys[0];
    s->excluded = keys[1];
    s->function_stack = lib.function_stack();
    s->function_disabled = lib.function_disabled() & 0xff;
    s->grad = lib.grad_mode() & 1;
    s->inference = lib.inference_mode() & 1;
    s->dual_level = dual_level();
    s->default_dtype = lib.default_dtype();
    void *context = lib.context();
    s->deterministic = lib.deterministic(context) & 1;
    s->deterministic_warn = lib.deterministic_warn(context) & 1;
    s->autocast_cache = lib.autocast_cache() & 1;
    for (int device = 0; device < 2; device++) {
        s->autocast[device] = lib.autocast_enabled((int8_t)device) & 1;
        if (s->autocast[device])
            s->autocast_dtype[device] = lib.autocast_dtype((int8_t)device);
    }
}

/* bind_torch(folder of torch's libraries, sample tensor requiring grad, its dispatch keys, its storage's _cdata) -> (tensors, storages, state) */
static PyObject *bind_torch(PyObject *Py_UNUSED(self), PyObject *args) {
    const char *folder;
    PyObject *sample;
    unsigned long long keys, storage;
    if (!PyArg_ParseTuple(args, "sOKK", &folder, &sample, &keys, &storage))
        return NULL;
    memset(&lib, 0, sizeof(lib));
    if (forward_ad_globals == NULL) {
        PyObject *module = PyImport_ImportModule("torch.autograd.forward_ad");
        if (module == NULL)
            return NULL;
        forward_ad_level = PyUnicode_InternFromString("_current_level");
        forward_ad_globals = Py_NewRef(PyModule_GetDict(module));
        Py_DECREF(module);
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/libtorch_cpu.so", folder);
    void *cpu = dlopen(path, RTLD_NOLOAD | RTLD_NOW);
    snprintf(path, sizeof path, "%s/libc10.so", folder);
    void *c10 = dlopen(path, RTLD_NOLOAD | RTLD_NOW);
    if (cpu == NULL || c10 == NULL)
        return Py_BuildValue("(iii)", 0, 0, 0);
    lib.c10 = c10;
    lib.dim = (get_i64)dlsym(cpu, "aoti_torch_get_dim");
    lib.offset = (get_i64)dlsym(cpu, "aoti_torch_get_storage_offset");
    lib.sizes = (get_i64s)dlsym(cpu, "aoti_torch_get_sizes");
    lib.strides = (get_i64s)dlsym(cpu, "aoti_torch_get_strides");
    lib.dtype = (get_i32)dlsym(cpu, "aoti_torch_get_dtype");
    lib.device_index = (get_i32)dlsym(cpu, "aoti_torch_get_device_index");
    lib.data_ptr = (int32_t(*)(void *, void **))dlsym(cpu, "aoti_torch_get_data_ptr");
    lib.requires_grad = (int (*)(const void *))dlsym(c10, "_ZNK3c1010TensorImpl13requires_gradEv");
    lib.grad_mode = (int (*)(void))dlsym(c10, "_ZN3c108GradMode10is_enabledEv");
    lib.inference_mode = (int (*)(void))dlsym(c10, "_ZN3c1013InferenceMode10is_enabledEv");
    lib.default_dtype = (int8_t(*)(void))dlsym(c10, "_ZN3c1031get_default_dtype_as_scalartypeEv");
    lib.context = (void *(*)(void))dlsym(cpu, "_ZN2at13globalContextEv");
    lib.deterministic = (int (*)(const void *))dlsym(cpu, "_ZNK2at7Context23deterministicAlgorithmsEv");
    lib.deterministic_warn = (int (*)(const void *))dlsym(cpu, "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv");
    lib.function_stack = (int64_t(*)(void))dlsym(cpu, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    lib.function_disabled = (int (*)(void))dlsym(cpu, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv");
    lib.autocast_enabled = (int (*)(int8_t))dlsym(cpu, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE");
    lib.autocast_dtype = (int8_t(*)(int8_t))dlsym(cpu, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
    lib.autocast_cache = (int (*)(void))dlsym(cpu, "_ZN2at8autocast25is_autocast_cache_enabledEv");
    lib.state = dispatch_tls() && lib.grad_mode && lib.inference_mode && lib.default_dtype && lib.context && lib.deterministic &&
                lib.deterministic_warn && lib.function_stack && lib.function_disabled && lib.autocast_enabled && lib.autocast_dtype &&
                lib.autocast_cache;
    /* The layout is checked and not assumed: the handle must be the object's _cdata, and the key set and storage must be words of the TensorImpl. */
    PyObject *cdata = PyObject_GetAttrString(sample, "_cdata");
    if (cdata == NULL)
        return NULL;
    void *impl = PyLong_AsVoidPtr(cdata);
    Py_DECREF(cdata);
    if (impl == NULL && PyErr_Occurred())
        return NULL;
    if (lib.dim && lib.offset && lib.sizes && lib.strides && lib.dtype && lib.device_index && lib.data_ptr && lib.requires_grad &&
        (void *)TENSOR_IMPL(sample) == impl) {
        uint64_t *words = (uint64_t *)impl;
        /* FACTS: word 21 in the releases measured; looked for nearby so that a shifted field is found and a wrong one is not used. */
        for (int i = 16; i <= 24; i++)
            if (words[i] == keys && lib.key_word == 0)
                lib.key_word = i;
        for (int i = 1; i <= 6; i++)
            if (words[i] == storage && lib.storage_word == 0)
                lib.storage_word = i;
        for (int i = 4; i <= 20; i++)
            if (words[i] == 2 && words[i + 1] == 2 && words[i + 2] == 3 && words[i + 6] == 3 && words[i + 7] == 1 && lib.size_word == 0)
                lib.size_word = i;
        int64_t dim = -1, *sizes = NULL;
        if (lib.key_word && lib.dim(TENSOR_HANDLE(sample), &dim) == 0 && lib.sizes(TENSOR_HANDLE(sample), &sizes) == 0 && dim == 2 &&
            sizes[0] == 2 && sizes[1] == 3 && (lib.requires_grad(impl) & 1) == 1)
            lib.tensors = 1;
        lib.storages = lib.tensors && lib.storage_word;
    }
    return Py_BuildValue("(iii)", lib.tensors, lib.storages, lib.state);
}

/* The fast readings of a tensor, for the self-check in Python: (keys, dtype code, requires_grad, sizes, strides, storage). */
static PyObject *probe_tensor(PyObject *Py_UNUSED(self), PyObject *tensor) {
    if (!lib.tensors)
        Py_RETURN_NONE;
    void *handle = TENSOR_HANDLE(tensor);
    int64_t dim = 0;
    const int64_t *sizes = NULL, *strides = NULL;
    int32_t dtype = 0;
    tensor_numbers(tensor, &dim, &sizes, &strides);
    lib.dtype(handle, &dtype);
    PyObject *a = PyTuple_New(dim), *b = PyTuple_New(dim);
    for (int64_t i = 0; a && b && i < dim; i++) {
        PyTuple_SET_ITEM(a, i, PyLong_FromLongLong(sizes[i]));
        PyTuple_SET_ITEM(b, i, PyLong_FromLongLong(strides[i]));
    }
    return Py_BuildValue("(KiiNNK)", (unsigned long long)TENSOR_IMPL(tensor)[lib.key_word], (int)dtype, lib.requires_grad(TENSOR_IMPL(tensor)) & 1, a, b,
                         (unsigned long long)(lib.storage_word ? TENSOR_IMPL(tensor)[lib.storage_word] : 0));
}
