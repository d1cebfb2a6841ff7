//! Names of errors, from include/uapi/asm-generic/errno.h and, for those that stay in the kernel, include/linux/errno.h.
//!
//! MIPS, SPARC, PA-RISC and Alpha number some of them differently.

/// By number.
const NAMES: [&str; 134] = [
    "",
    "EPERM",
    "ENOENT",
    "ESRCH",
    "EINTR",
    "EIO",
    "ENXIO",
    "E2BIG",
    "ENOEXEC",
    "EBADF",
    "ECHILD",
    "EAGAIN",
    "ENOMEM",
    "EACCES",
    "EFAULT",
    "ENOTBLK",
    "EBUSY",
    "EEXIST",
    "EXDEV",
    "ENODEV",
    "ENOTDIR",
    "EISDIR",
    "EINVAL",
    "ENFILE",
    "EMFILE",
    "ENOTTY",
    "ETXTBSY",
    "EFBIG",
    "ENOSPC",
    "ESPIPE",
    "EROFS",
    "EMLINK",
    "EPIPE",
    "EDOM",
    "ERANGE",
    "EDEADLK",
    "ENAMETOOLONG",
    "ENOLCK",
    "ENOSYS",
    "ENOTEMPTY",
    "ELOOP",
    "",
    "ENOMSG",
    "EIDRM",
    "ECHRNG",
    "EL2NSYNC",
    "EL3HLT",
    "EL3RST",
    "ELNRNG",
    "EUNATCH",
    "ENOCSI",
    "EL2HLT",
    "EBADE",
    "EBADR",
    "EXFULL",
    "ENOANO",
    "EBADRQC",
    "EBADSLT",
    "",
    "EBFONT",
    "ENOSTR",
    "ENODATA",
    "ETIME",
    "ENOSR",
    "ENONET",
    "ENOPKG",
    "EREMOTE",
    "ENOLINK",
    "EADV",
    "ESRMNT",
    "ECOMM",
    "EPROTO",
    "EMULTIHOP",
    "EDOTDOT",
    "EBADMSG",
    "EOVERFLOW",
    "ENOTUNIQ",
    "EBADFD",
    "EREMCHG",
    "ELIBACC",
    "ELIBBAD",
    "ELIBSCN",
    "ELIBMAX",
    "ELIBEXEC",
    "EILSEQ",
    "ERESTART",
    "ESTRPIPE",
    "EUSERS",
    "ENOTSOCK",
    "EDESTADDRREQ",
    "EMSGSIZE",
    "EPROTOTYPE",
    "ENOPROTOOPT",
    "EPROTONOSUPPORT",
    "ESOCKTNOSUPPORT",
    "EOPNOTSUPP",
    "EPFNOSUPPORT",
    "EAFNOSUPPORT",
    "EADDRINUSE",
    "EADDRNOTAVAIL",
    "ENETDOWN",
    "ENETUNREACH",
    "ENETRESET",
    "ECONNABORTED",
    "ECONNRESET",
    "ENOBUFS",
    "EISCONN",
    "ENOTCONN",
    "ESHUTDOWN",
    "ETOOMANYREFS",
    "ETIMEDOUT",
    "ECONNREFUSED",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "EALREADY",
    "EINPROGRESS",
    "ESTALE",
    "EUCLEAN",
    "ENOTNAM",
    "ENAVAIL",
    "EISNAM",
    "EREMOTEIO",
    "EDQUOT",
    "ENOMEDIUM",
    "EMEDIUMTYPE",
    "ECANCELED",
    "ENOKEY",
    "EKEYEXPIRED",
    "EKEYREVOKED",
    "EKEYREJECTED",
    "EOWNERDEAD",
    "ENOTRECOVERABLE",
    "ERFKILL",
    "EHWPOISON",
];

/// Errors that only the kernel uses, among them the codes for restarting a system call.
const INTERNAL: &[(i64, &str)] = &[
    (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"),
    (514, "ERESTARTNOHAND"),
    (515, "ENOIOCTLCMD"),
    (516, "ERESTART_RESTARTBLOCK"),
    (517, "EPROBE_DEFER"),
    (518, "EOPENSTALE"),
    (519, "ENOPARAM"),
    (521, "EBADHANDLE"),
    (522, "ENOTSYNC"),
    (523, "EBADCOOKIE"),
    (524, "ENOTSUPP"),
    (525, "ETOOSMALL"),
    (526, "ESERVERFAULT"),
    (527, "EBADTYPE"),
    (528, "EJUKEBOX"),
    (529, "EIOCBQUEUED"),
    (530, "ERECALLCONFLICT"),
    (531, "ENOGRACE"),
];

/// Returns the name of the error in a system call's result, a small negative number; `None` for success.
pub fn name(result: i64) -> Option<&'static str> {
    let number = result
        .checked_neg()
        .filter(|number| (1..4096).contains(number))?;
    let internal = || INTERNAL.iter().find(|(other, _)| *other == number);
    let name = usize::try_from(number)
        .ok()
        .and_then(|place| NAMES.get(place));
    let name = name.filter(|name| !name.is_empty()).copied();
    name.or_else(|| internal().map(|(_, name)| *name))
}

/// Returns the number of an error; `None` if the name is unknown.
///
/// ```
/// assert_eq!(perfquet_events::errno::number(b"ENOENT"), Some(2));
/// ```
pub fn number(name: &[u8]) -> Option<i64> {
    if name.is_empty() {
        return None;
    }
    let is_it = |other: &str| other.as_bytes() == name;
    let place = NAMES.iter().position(|other| is_it(other));
    let internal = || INTERNAL.iter().find(|(_, other)| is_it(other));
    let number = place.and_then(|place| i64::try_from(place).ok());
    number.or_else(|| internal().map(|(number, _)| *number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_results() {
        let names = [0, 5, -1, -2, -11, -133, -512, -134, -4096].map(name);
        let expected = [
            None,
            None,
            Some("EPERM"),
            Some("ENOENT"),
            Some("EAGAIN"),
            Some("EHWPOISON"),
            Some("ERESTARTSYS"),
            None,
            None,
        ];
        assert_eq!(names, expected);
        let numbers = [&b"EPERM"[..], b"ERESTARTSYS", b"", b"E"].map(number);
        assert_eq!(numbers, [Some(1), Some(512), None, None]);
    }
}
