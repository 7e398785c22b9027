dnl SPDX-License-Identifier: Apache-2.0
dnl The options and probes of configure.ac, one macro each.

dnl STRATA_TRY_CFLAG(FLAG, VARIABLE, [NOTE-VARIABLE])
dnl Appends FLAG to VARIABLE when the compiler takes it without a word.
AC_DEFUN([STRATA_TRY_CFLAG], [
    AC_MSG_CHECKING([whether the compiler takes $1])
    strata_save_CFLAGS=$CFLAGS
    CFLAGS="$strata_opt $CFLAGS -Werror $1"
    AC_COMPILE_IFELSE(
        [AC_LANG_PROGRAM([[#include <stdio.h>]], [[char b[8]; return snprintf(b, sizeof b, "x") != 1;]])],
        [AC_MSG_RESULT([yes])
         $2="$$2 $1"
         m4_ifnblank([$3], [$3="$$3 $1"])],
        [AC_MSG_RESULT([no])])
    CFLAGS=$strata_save_CFLAGS
])

dnl STRATA_TRY_LDFLAG(FLAG, VARIABLE, [NOTE-VARIABLE])
AC_DEFUN([STRATA_TRY_LDFLAG], [
    AC_MSG_CHECKING([whether the linker takes $1])
    strata_save_LDFLAGS=$LDFLAGS
    LDFLAGS="$LDFLAGS -Werror $1"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
        [AC_MSG_RESULT([yes])
         $2="$$2 $1"
         m4_ifnblank([$3], [$3="$$3 $1"])],
        [AC_MSG_RESULT([no])])
    LDFLAGS=$strata_save_LDFLAGS
])

dnl gnu17 whatever the compiler's default is; C23 changes the meaning of f().
AC_DEFUN([STRATA_C_STANDARD], [
    AC_MSG_CHECKING([for -std=gnu17])
    CFLAGS="-std=gnu17 $CFLAGS"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
        [AC_MSG_ERROR([the compiler does not know gnu17])])
])

AC_DEFUN([STRATA_ARG_WERROR], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [treat warnings as errors (for developers and CI)])],
        [], [enable_werror=no])
])

dnl address,undefined by default; anything the compiler's -fsanitize= takes.
AC_DEFUN([STRATA_ARG_SANITIZERS], [
    AC_ARG_ENABLE([sanitizers],
        [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@],
            [build with sanitizers (default address,undefined; another is thread)])],
        [], [enable_sanitizers=no])
    AS_CASE([$enable_sanitizers],
        [no], [strata_sanitizers=],
        [yes], [strata_sanitizers=address,undefined],
        [strata_sanitizers=$enable_sanitizers])
])

AC_DEFUN([STRATA_ARG_FUZZER], [
    AC_ARG_ENABLE([fuzzer],
        [AS_HELP_STRING([--enable-fuzzer],
            [link the fuzz targets with clang's libFuzzer (default: they replay their corpus)])],
        [], [enable_fuzzer=no])
    strata_fuzzer=$enable_fuzzer
    AS_IF([test "$enable_fuzzer" != no], [
        strata_fuzzer=yes
        AS_IF([test -z "$strata_sanitizers"], [strata_sanitizers=address,undefined])
    ])
    AM_CONDITIONAL([FUZZER], [test "$enable_fuzzer" != no])
    AS_IF([test -n "$strata_sanitizers"], [
        SANITIZER_FLAGS="-fsanitize=$strata_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
        strata_save_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS $SANITIZER_FLAGS"
        AC_MSG_CHECKING([whether $CC links with -fsanitize=$strata_sanitizers])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
            [AC_MSG_ERROR([$CC cannot link with -fsanitize=$strata_sanitizers])])
        CFLAGS=$strata_save_CFLAGS
    ])
    AS_IF([test "$enable_fuzzer" != no], [
        strata_save_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS -fsanitize=fuzzer"
        AC_MSG_CHECKING([whether $CC links with -fsanitize=fuzzer])
        AC_LINK_IFELSE(
            [AC_LANG_SOURCE([[
#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n) { (void)d; (void)n; return 0; }]])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_ERROR([--enable-fuzzer needs libFuzzer: configure with CC=clang])])
        CFLAGS=$strata_save_CFLAGS
        SANITIZER_FLAGS="$SANITIZER_FLAGS -fsanitize=fuzzer-no-link"
        FUZZER_LDFLAGS=-fsanitize=fuzzer
    ])
    AC_SUBST([SANITIZER_FLAGS])
    AC_SUBST([FUZZER_LDFLAGS])
    AM_CONDITIONAL([SANITIZERS], [test -n "$strata_sanitizers"])
])

AC_DEFUN([STRATA_ARG_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda], [build the CUDA backend (not there yet: an error)])],
        [], [with_cuda=auto])
    AS_CASE([$with_cuda],
        [no], [strata_cuda_note="no"],
        [auto], [strata_cuda_note="no (this version has none; the CPU is used)"],
        [AC_MSG_ERROR([--with-cuda: the CUDA backend is not there yet; configure without it])])
])

dnl Where things of other packages look for our files.  distcheck overrides them all.
AC_DEFUN([STRATA_ARG_DIRS], [
    AC_ARG_WITH([systemdsystemunitdir],
        [AS_HELP_STRING([--with-systemdsystemunitdir=DIR], [system units (default: systemd.pc's; no: none)])],
        [], [with_systemdsystemunitdir=auto])
    AC_ARG_WITH([sysusersdir],
        [AS_HELP_STRING([--with-sysusersdir=DIR], [sysusers.d files (default: systemd.pc's; no: none)])],
        [], [with_sysusersdir=auto])
    AC_ARG_WITH([catalogdir],
        [AS_HELP_STRING([--with-catalogdir=DIR], [the journal's catalogue (default: systemd.pc's; no: none)])],
        [], [with_catalogdir=auto])
    STRATA_DIR([systemdsystemunitdir], [systemd_system_unit_dir], [/usr/lib/systemd/system])
    STRATA_DIR([sysusersdir], [sysusers_dir], [/usr/lib/sysusers.d])
    STRATA_DIR([catalogdir], [catalogdir], [/usr/lib/systemd/catalog])
])

dnl STRATA_DIR(NAME, VARIABLE OF systemd.pc, FALLBACK)
AC_DEFUN([STRATA_DIR], [
    AS_CASE([$with_$1],
        [no], [$1=],
        [auto|yes], [
            $1=`$PKG_CONFIG --variable=$2 systemd 2>/dev/null`
            AS_IF([test -z "$$1"], [$1=$3])],
        [$1=$with_$1])
    AC_SUBST([$1])
    AM_CONDITIONAL([INSTALL_]m4_toupper([$1]), [test -n "$$1"])
])

AC_DEFUN([STRATA_WARNINGS], [
    WARNING_FLAGS=
    m4_foreach_w([flag], [-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
                          -Wformat=2 -Wimplicit-fallthrough -Wswitch-enum -Wsign-compare
                          -Wpointer-arith],
        [STRATA_TRY_CFLAG(flag, [WARNING_FLAGS])])
    strata_warnings_note=on
    AS_IF([test "$enable_werror" != no], [
        WARNING_FLAGS="$WARNING_FLAGS -Werror"
        strata_warnings_note="on, as errors"
    ])
    AC_SUBST([WARNING_FLAGS])
])

dnl Each probed alone, so that a compiler lacking one keeps the others.
AC_DEFUN([STRATA_HARDENING], [
    AC_ARG_ENABLE([hardening],
        [AS_HELP_STRING([--disable-hardening], [no PIE, RELRO, stack protector, FORTIFY])],
        [], [enable_hardening=yes])
    HARDENING_CFLAGS= HARDENING_LDFLAGS= strata_hardening_note=
    AS_IF([test "$enable_hardening" != no], [
        STRATA_TRY_CFLAG([-fPIE], [HARDENING_CFLAGS])
        STRATA_TRY_LDFLAG([-pie], [HARDENING_LDFLAGS], [strata_hardening_note])
        STRATA_TRY_LDFLAG([-Wl,-z,relro], [HARDENING_LDFLAGS], [strata_hardening_note])
        STRATA_TRY_LDFLAG([-Wl,-z,now], [HARDENING_LDFLAGS], [strata_hardening_note])
        STRATA_TRY_LDFLAG([-Wl,-z,noexecstack], [HARDENING_LDFLAGS])
        STRATA_TRY_CFLAG([-fstack-protector-strong], [HARDENING_CFLAGS], [strata_hardening_note])
        STRATA_TRY_CFLAG([-fstack-clash-protection], [HARDENING_CFLAGS], [strata_hardening_note])
        # FORTIFY hides errors from the sanitizers and needs optimisation (glibc warns without).
        AS_IF([test -z "$strata_sanitizers"], [
            STRATA_TRY_CFLAG([-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2], [HARDENING_CFLAGS],
                             [strata_hardening_note])
        ])
    ])
    AS_IF([test -z "$strata_hardening_note"], [strata_hardening_note=" none"])
    AC_SUBST([HARDENING_CFLAGS])
    AC_SUBST([HARDENING_LDFLAGS])
])
