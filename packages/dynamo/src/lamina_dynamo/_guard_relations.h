/* Relations: checks of several values of a guard program, which it keeps in registers and looks at last. */

enum shape_op { S_CONST, S_LOAD, S_ADD, S_SUB, S_MUL, S_FLOORDIV, S_MOD, S_POW, S_MIN, S_MAX, S_ABS, S_NEG, S_EQ, S_NE, S_LT, S_LE, S_GT, S_GE, S_AND, S_OR, S_NOT };

static int run_shape(const Check *check, const int64_t *values) {
    int64_t stack[64];
    int top = 0;
    const ShapeOp *ops = (const ShapeOp *)check->extra;
    for (int i = 0; i < check->number; i++) {
        int op = ops[i].op;
        if (op == S_CONST || op == S_LOAD) {
            stack[top++] = op == S_CONST ? ops[i].value : values[ops[i].arg];
            continue;
        }
        if (op == S_ABS || op == S_NEG || op == S_NOT) {
            int64_t *a = &stack[top - 1];
            if (op == S_NOT)
                *a = !*a;
            else if (*a == INT64_MIN)
                return 0;
            else if (op == S_NEG || *a < 0)
                *a = -*a;
            continue;
        }
        int64_t b = stack[--top], a = stack[top - 1], r = 0;
        switch (op) {
        case S_ADD:
            if (__builtin_add_overflow(a, b, &r))
                return 0;
            break;
        case S_SUB:
            if (__builtin_sub_overflow(a, b, &r))
                return 0;
            break;
        case S_MUL:
            if (__builtin_mul_overflow(a, b, &r))
                return 0;
            break;
        case S_FLOORDIV:
        case S_MOD: {
            if (b == 0 || (a == INT64_MIN && b == -1))
                return 0;
            int64_t q = a / b, m = a % b;
            if (m != 0 && ((m < 0) != (b < 0))) {
                q--;
                m += b;
            }
            r = op == S_FLOORDIV ? q : m;
            break;
        }
        case S_POW:
            if (b < 0)
                return 0;
            r = 1;
            while (b-- > 0)
                if (__builtin_mul_overflow(r, a, &r))
                    return 0;
            break;
        case S_MIN: r = a < b ? a : b; break;
        case S_MAX: r = a > b ? a : b; break;
        case S_EQ: r = a == b; break;
        case S_NE: r = a != b; break;
        case S_LT: r = a < b; break;
        case S_LE: r = a <= b; break;
        case S_GT: r = a > b; break;
        case S_GE: r = a >= b; break;
        case S_AND: r = a && b; break;
        case S_OR: r = a || b; break;
        default: return 0;
        }
        stack[top - 1] = r;
    }
    return top == 1 && stack[0] != 0;
}

static int run_relation(const Check *check, PyObject **registers) {
    int n = check->count;
    for (int i = 0; i < n; i++)
        if (registers[check->registers[i]] == NULL)
            return 0;
#define VALUE(i) registers[check->registers[i]]
    switch (check->op) {
    case C_GLOBAL_STATE:
        return check_state(check);
    case C_SAME_OBJECT:
        for (int i = 1; i < n; i++)
            if (VALUE(i) != VALUE(0))
                return 0;
        return 1;
    case C_NOT_SAME: {
        enum { FEW = 16 };
        if (n <= FEW) {
            for (int i = 0; i < n; i++)
                for (int j = i + 1; j < n; j++)
                    if (VALUE(i) == VALUE(j))
                        return 0;
            return 1;
        }
        size_t size = 64;
        while (size < 2 * (size_t)n)
            size *= 2;
        PyObject **table = (PyObject **)calloc(size, sizeof(PyObject *));
        int ok = table != NULL;
        for (int i = 0; i < n && ok; i++) {
            size_t h = (((uintptr_t)VALUE(i) >> 4) * 2654435761u) & (size - 1);
            while (table[h] != NULL && table[h] != VALUE(i))
                h = (h + 1) & (size - 1);
            ok = table[h] == NULL;
            table[h] = VALUE(i);
        }
        free(table);
        return ok;
    }
    case C_NO_OVERLAP: {
        /* extra: pairs (first tensor of the same storage, distance in bytes). Storages in a small open table. */
        const int64_t *expected = (const int64_t *)check->extra;
        int size = 16, ok = 1;
        while (size < 2 * n)
            size *= 2;
        int local[64], *table = size <= 64 ? local : (int *)malloc(sizeof(int) * (size_t)size);
        if (table == NULL)
            return 0;
        memset(table, -1, sizeof(int) * (size_t)size);
        for (int i = 0; i < n && ok; i++) {
            uint64_t storage = TENSOR_IMPL(VALUE(i))[lib.storage_word];
            int first = i;
            for (unsigned h = (unsigned)((storage >> 4) * 2654435761u) & (unsigned)(size - 1);; h = (h + 1) & (unsigned)(size - 1)) {
                if (table[h] < 0) {
                    table[h] = i;
                    break;
                }
                if (TENSOR_IMPL(VALUE(table[h]))[lib.storage_word] == storage) {
                    first = table[h];
                    break;
                }
            }
            if (first != expected[2 * i])
                ok = 0;
            else if (first != i) {
                void *a = NULL, *b = NULL;
                lib.data_ptr(TENSOR_HANDLE(VALUE(first)), &a);
                lib.data_ptr(TENSOR_HANDLE(VALUE(i)), &b);
                ok = (char *)b - (char *)a == expected[2 * i + 1];
            }
        }
        if (table != local)
            free(table);
        return ok;
    }
    case C_SHAPE_EXPR: {
        int64_t values[64];
        for (int i = 0; i < n; i++) {
            int overflow = 0;
            if (!PyLong_Check(VALUE(i)))
                return 0;
            values[i] = PyLong_AsLongLongAndOverflow(VALUE(i), &overflow);
            if (overflow)
                return 0;
        }
        return run_shape(check, values);
    }
    case C_PYTHON_RELATION: {
        PyObject *list = PyList_New(n);
        if (list == NULL) {
            PyErr_Clear();
            return 0;
        }
        for (int i = 0; i < n; i++) {
            Py_INCREF(VALUE(i));
            PyList_SET_ITEM(list, i, VALUE(i));
        }
        int ok = call_predicate(check->object, list);
        Py_DECREF(list);
        return ok;
    }
    default:
        return 0;
    }
#undef VALUE
}
