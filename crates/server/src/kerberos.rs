//! Kerberos: MIT's library (RFC 2744), as far as a server needs it that takes tickets. It asks nobody what a ticket is
//! worth: the service's key decides.
//!
//! This module is `unsafe`: it calls C. All that the library hands out has an owner here, which gives it back when it
//! is dropped, and what it is lent lives as long as the call.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

/// 1.2.840.113554.1.2.2: Kerberos.
static KERBEROS: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
/// 1.2.840.113554.1.2.1.4: names such as `ldap@ldap.example.com`.
static HOSTBASED_SERVICE: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04";

/// The bits of a status that say that it is an error (RFC 2744 §3.9.1).
const ERRORS: u32 = 0xffff_0000;
const CONTINUE_NEEDED: u32 = 1;
const INDEFINITE: u32 = u32::MAX;
const ACCEPT: c_int = 2;
const ANONYMOUS: u32 = 64;
const OF_ROUTINES: c_int = 1;
const OF_THE_MECHANISM: c_int = 2;

/// What the library did not do, in its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(String);

/// Who takes tickets of a service: its keys.
pub(crate) struct Acceptor(*mut c_void);

// SAFETY: the library locks a credential handle for each use, from whatever thread.
unsafe impl Send for Acceptor {}
// SAFETY: as above; nothing here changes one.
unsafe impl Sync for Acceptor {}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    /// For a service with a name such as `ldap@ldap.example.com`, whose keys are in this keytab.
    ///
    /// # Errors
    /// Mostly that the keytab has no key of it.
    pub(crate) fn new(service: &str, keytab: &Path) -> Result<Self, Error> {
        let keytab = CString::new(keytab.as_os_str().as_bytes())
            .map_err(|_| Error("no file has a name with a zero octet in it".into()))?;
        let (mut hostbased, mut kerberos) = (Oid::new(HOSTBASED_SERVICE), Oid::new(KERBEROS));
        let mut name = Name(null_mut());
        let lent = Lent::new(service.as_bytes());
        let mut minor = 0;
        // SAFETY: all pointers are to values that live through the call; the name it makes is given to its owner.
        let major = unsafe { gss_import_name(&mut minor, &lent.0, &mut hostbased, &mut name.0) };
        check(major, minor)?;
        let element = KeyValue {
            key: c"keytab".as_ptr(),
            value: keytab.as_ptr(),
        };
        let store = KeyValues {
            count: 1,
            elements: &element,
        };
        let mut mechanisms = OidSet {
            count: 1,
            elements: &mut kerberos,
        };
        let mut acceptor = Self(null_mut());
        // SAFETY: as above; where null is handed over, RFC 2744 §5.2 has the library give nothing back.
        let major = unsafe {
            gss_acquire_cred_from(
                &mut minor,
                name.0,
                INDEFINITE,
                &mut mechanisms,
                ACCEPT,
                &store,
                &mut acceptor.0,
                null_mut(),
                null_mut(),
            )
        };
        check(major, minor)?;
        Ok(acceptor)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // SAFETY: the handle is the library's, or null, which it takes as well; nobody else has it.
        unsafe { gss_release_cred(&mut 0, &mut self.0) };
    }
}

/// One client's way to be known.
pub(crate) struct Context {
    handle: *mut c_void,
    client: Name,
    flags: u32,
}

// SAFETY: a context is used by one thread at a time, which is all that the library asks for.
unsafe impl Send for Context {}

/// Where a context stands.
pub(crate) enum Accepted {
    /// The client has to say more, and is told this.
    More(Buffer),
    /// It is known, and is told this if it is not empty.
    Known(Buffer),
}

impl Context {
    pub(crate) fn new() -> Self {
        Self {
            handle: null_mut(),
            client: Name(null_mut()),
            flags: 0,
        }
    }

    /// Takes what the client says.
    ///
    /// # Errors
    /// That it is no ticket for this service, or that its time is over or not yet come.
    pub(crate) fn accept(
        &mut self,
        acceptor: &Acceptor,
        message: &[u8],
    ) -> Result<Accepted, Error> {
        let lent = Lent::new(message);
        let mut answer = Buffer::new();
        // An earlier call may have said who it is.
        self.client = Name(null_mut());
        let mut minor = 0;
        // SAFETY: all pointers are to values that live through the call; the context is the one of the calls before, or
        // null in the first one; what the call makes is given to its owners; where null is handed over, RFC 2744 §5.1
        // has the library give nothing back, credentials of the client among it.
        let major = unsafe {
            gss_accept_sec_context(
                &mut minor,
                &mut self.handle,
                acceptor.0,
                &lent.0,
                null(),
                &mut self.client.0,
                null_mut(),
                &mut answer.0,
                &mut self.flags,
                null_mut(),
                null_mut(),
            )
        };
        check(major, minor)?;
        Ok(match major & CONTINUE_NEEDED {
            0 => Accepted::Known(answer),
            _ => Accepted::More(answer),
        })
    }

    /// Whether a known client is nobody.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.flags & ANONYMOUS != 0
    }

    /// The principals of a known client, and of the service that its ticket is for.
    pub(crate) fn names(&self) -> Result<[Buffer; 2], Error> {
        let mut service = Name(null_mut());
        let mut minor = 0;
        // SAFETY: the context is whole once the client is known, and null is an error; what the call makes is given to
        // its owner.
        let major = unsafe {
            gss_inquire_context(
                &mut minor,
                self.handle,
                null_mut(),
                &mut service.0,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        check(major, minor)?;
        Ok([self.client.display()?, service.display()?])
    }

    /// Protects a message against change.
    pub(crate) fn wrap(&mut self, message: &[u8]) -> Result<Buffer, Error> {
        let lent = Lent::new(message);
        let mut wrapped = Buffer::new();
        let mut minor = 0;
        // SAFETY: as for `names`.
        let major = unsafe {
            gss_wrap(
                &mut minor,
                self.handle,
                0,
                0,
                &lent.0,
                null_mut(),
                &mut wrapped.0,
            )
        };
        check(major, minor)?;
        Ok(wrapped)
    }

    /// Takes the protection off a message, if nobody has changed it.
    pub(crate) fn unwrap(&mut self, message: &[u8]) -> Result<Buffer, Error> {
        let lent = Lent::new(message);
        let mut plain = Buffer::new();
        let mut minor = 0;
        // SAFETY: as for `names`.
        let major = unsafe {
            gss_unwrap(
                &mut minor,
                self.handle,
                &lent.0,
                &mut plain.0,
                null_mut(),
                null_mut(),
            )
        };
        check(major, minor)?;
        Ok(plain)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is the library's, and nobody else has it.
            unsafe { gss_delete_sec_context(&mut 0, &mut self.handle, null_mut()) };
        }
    }
}

/// A name of the library's, or null.
struct Name(*mut c_void);

impl Name {
    fn display(&self) -> Result<Buffer, Error> {
        let mut shown = Buffer::new();
        let mut minor = 0;
        // SAFETY: the name is whole, or null, which is an error.
        let major = unsafe { gss_display_name(&mut minor, self.0, &mut shown.0, null_mut()) };
        check(major, minor)?;
        Ok(shown)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the name is the library's, and nobody else has it.
            unsafe { gss_release_name(&mut 0, &mut self.0) };
        }
    }
}

/// Bytes that the library has written.
pub(crate) struct Buffer(BufferDesc);

impl Buffer {
    fn new() -> Self {
        Self(BufferDesc {
            length: 0,
            value: null_mut(),
        })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.0.value.is_null() {
            true => &[],
            // SAFETY: the library says where so many bytes are, which stay as they are until this is dropped.
            false => unsafe {
                std::slice::from_raw_parts(self.0.value.cast::<u8>(), self.0.length)
            },
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the bytes are the library's, or there are none; nobody else has them.
        unsafe { gss_release_buffer(&mut 0, &mut self.0) };
    }
}

/// Bytes that the library reads while it is called: it changes nothing behind a pointer to one of these.
struct Lent<'b>(BufferDesc, std::marker::PhantomData<&'b [u8]>);

impl<'b> Lent<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        let desc = BufferDesc {
            length: bytes.len(),
            value: bytes.as_ptr().cast_mut().cast(),
        };
        Self(desc, std::marker::PhantomData)
    }
}

/// What a status says, if it is an error: the mechanism's word for it tells more than the general one.
fn check(major: u32, minor: u32) -> Result<(), Error> {
    if major & ERRORS == 0 {
        return Ok(());
    }
    let told = [(major, OF_ROUTINES), (minor, OF_THE_MECHANISM)].map(|(status, kind)| {
        if status == 0 {
            String::new()
        } else {
            said(status, kind)
        }
    });
    let told: Vec<&str> = told
        .iter()
        .map(|text| &**text)
        .filter(|text| !text.is_empty())
        .collect();
    Err(Error(told.join(": ")))
}

/// What a status means.
fn said(status: u32, kind: c_int) -> String {
    let mut kerberos = Oid::new(KERBEROS);
    let mut text = Buffer::new();
    // SAFETY: all pointers are to values that live through the call; the text is given to its owner.
    let major =
        unsafe { gss_display_status(&mut 0, status, kind, &mut kerberos, &mut 0, &mut text.0) };
    match major {
        0 => String::from_utf8_lossy(&text).into_owned(),
        _ => format!("status {status}"),
    }
}

#[repr(C)]
struct BufferDesc {
    length: usize,
    value: *mut c_void,
}

#[repr(C)]
struct Oid {
    length: u32,
    elements: *mut c_void,
}

impl Oid {
    /// The library reads it only.
    fn new(bytes: &'static [u8]) -> Self {
        Self {
            length: bytes.len() as u32,
            elements: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

#[repr(C)]
struct OidSet {
    count: usize,
    elements: *mut Oid,
}

#[repr(C)]
struct KeyValue {
    key: *const c_char,
    value: *const c_char,
}

#[repr(C)]
struct KeyValues {
    count: u32,
    elements: *const KeyValue,
}

// As `gssapi/gssapi.h` and `gssapi/gssapi_ext.h` declare them.
#[link(name = "gssapi_krb5")]
unsafe extern "C" {
    fn gss_import_name(
        minor: *mut u32,
        text: *const BufferDesc,
        kind: *mut Oid,
        name: *mut *mut c_void,
    ) -> u32;
    fn gss_acquire_cred_from(
        minor: *mut u32,
        name: *mut c_void,
        seconds: u32,
        mechanisms: *mut OidSet,
        usage: c_int,
        store: *const KeyValues,
        credential: *mut *mut c_void,
        actual: *mut *mut OidSet,
        seconds_given: *mut u32,
    ) -> u32;
    fn gss_accept_sec_context(
        minor: *mut u32,
        context: *mut *mut c_void,
        acceptor: *mut c_void,
        message: *const BufferDesc,
        bindings: *const c_void,
        client: *mut *mut c_void,
        mechanism: *mut *mut Oid,
        answer: *mut BufferDesc,
        flags: *mut u32,
        seconds: *mut u32,
        delegated: *mut *mut c_void,
    ) -> u32;
    fn gss_inquire_context(
        minor: *mut u32,
        context: *mut c_void,
        client: *mut *mut c_void,
        service: *mut *mut c_void,
        seconds: *mut u32,
        mechanism: *mut *mut Oid,
        flags: *mut u32,
        is_initiator: *mut c_int,
        is_whole: *mut c_int,
    ) -> u32;
    fn gss_display_name(
        minor: *mut u32,
        name: *mut c_void,
        text: *mut BufferDesc,
        kind: *mut *mut Oid,
    ) -> u32;
    fn gss_wrap(
        minor: *mut u32,
        context: *mut c_void,
        is_secret: c_int,
        quality: u32,
        message: *const BufferDesc,
        was_secret: *mut c_int,
        wrapped: *mut BufferDesc,
    ) -> u32;
    fn gss_unwrap(
        minor: *mut u32,
        context: *mut c_void,
        wrapped: *const BufferDesc,
        message: *mut BufferDesc,
        was_secret: *mut c_int,
        quality: *mut u32,
    ) -> u32;
    fn gss_display_status(
        minor: *mut u32,
        status: u32,
        kind: c_int,
        mechanism: *mut Oid,
        more: *mut u32,
        text: *mut BufferDesc,
    ) -> u32;
    fn gss_release_buffer(minor: *mut u32, buffer: *mut BufferDesc) -> u32;
    fn gss_release_name(minor: *mut u32, name: *mut *mut c_void) -> u32;
    fn gss_release_cred(minor: *mut u32, credential: *mut *mut c_void) -> u32;
    fn gss_delete_sec_context(
        minor: *mut u32,
        context: *mut *mut c_void,
        token: *mut BufferDesc,
    ) -> u32;
}
