//! Result codes (RFC 4511 §4.1.9).

macro_rules! result_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// How an operation ended (RFC 4511 appendix A and the registry of RFC 4520 §3.8).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ResultCode {
            $($(#[$doc])* $variant,)*
            /// A code that is not in this list.
            Other(u32),
        }

        impl ResultCode {
            /// The number on the wire.
            pub const fn code(self) -> u32 {
                match self {
                    $(ResultCode::$variant => $code,)*
                    ResultCode::Other(code) => code,
                }
            }

            /// The name in RFC 4511, `other` for a number that is not in this list.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ResultCode::$variant => $name,)*
                    ResultCode::Other(_) => "other",
                }
            }
        }

        impl From<u32> for ResultCode {
            fn from(code: u32) -> Self {
                match code {
                    $($code => ResultCode::$variant,)*
                    code => ResultCode::Other(code),
                }
            }
        }
    };
}

result_codes! {
    /// Done.
    Success = 0, "success";
    /// The operation is not properly sequenced with others.
    OperationsError = 1, "operationsError";
    /// The message breaks the protocol.
    ProtocolError = 2, "protocolError";
    /// The time limit ended the operation.
    TimeLimitExceeded = 3, "timeLimitExceeded";
    /// The size limit ended the operation.
    SizeLimitExceeded = 4, "sizeLimitExceeded";
    /// Compare: the assertion is false or undefined.
    CompareFalse = 5, "compareFalse";
    /// Compare: the assertion is true.
    CompareTrue = 6, "compareTrue";
    /// The authentication method or mechanism is not supported.
    AuthMethodNotSupported = 7, "authMethodNotSupported";
    /// Strong(er) authentication is required.
    StrongerAuthRequired = 8, "strongerAuthRequired";
    /// Other servers may be able to do it.
    Referral = 10, "referral";
    /// A limit set by the administrator was exceeded.
    AdminLimitExceeded = 11, "adminLimitExceeded";
    /// A critical control is not recognised or not fit for the operation.
    UnavailableCriticalExtension = 12, "unavailableCriticalExtension";
    /// The operation needs a confidential session.
    ConfidentialityRequired = 13, "confidentialityRequired";
    /// SASL: one more round is needed.
    SaslBindInProgress = 14, "saslBindInProgress";
    /// The entry does not have the attribute or the value.
    NoSuchAttribute = 16, "noSuchAttribute";
    /// The attribute description is not known.
    UndefinedAttributeType = 17, "undefinedAttributeType";
    /// The matching rule does not fit the attribute.
    InappropriateMatching = 18, "inappropriateMatching";
    /// A constraint on values is broken.
    ConstraintViolation = 19, "constraintViolation";
    /// The attribute or value is already there.
    AttributeOrValueExists = 20, "attributeOrValueExists";
    /// A value does not follow the attribute's syntax.
    InvalidAttributeSyntax = 21, "invalidAttributeSyntax";
    /// The entry does not exist.
    NoSuchObject = 32, "noSuchObject";
    /// An alias was met that cannot be followed.
    AliasProblem = 33, "aliasProblem";
    /// A DN does not follow its syntax.
    InvalidDnSyntax = 34, "invalidDNSyntax";
    /// An alias was met where dereferencing is not allowed.
    AliasDereferencingProblem = 36, "aliasDereferencingProblem";
    /// Anonymous where a name is needed, or the like.
    InappropriateAuthentication = 48, "inappropriateAuthentication";
    /// The name or the password is wrong.
    InvalidCredentials = 49, "invalidCredentials";
    /// Not allowed.
    InsufficientAccessRights = 50, "insufficientAccessRights";
    /// Too busy.
    Busy = 51, "busy";
    /// Shutting down or offline.
    Unavailable = 52, "unavailable";
    /// The server is unwilling.
    UnwillingToPerform = 53, "unwillingToPerform";
    /// A loop was found.
    LoopDetect = 54, "loopDetect";
    /// A list view needs sorting (draft-ietf-ldapext-ldapv3-vlv).
    SortControlMissing = 60, "sortControlMissing";
    /// An offset is not in the list (draft-ietf-ldapext-ldapv3-vlv).
    OffsetRangeError = 61, "offsetRangeError";
    /// The entry's name breaks a structure rule.
    NamingViolation = 64, "namingViolation";
    /// The entry breaks its object classes.
    ObjectClassViolation = 65, "objectClassViolation";
    /// The operation is not allowed on an entry with children.
    NotAllowedOnNonLeaf = 66, "notAllowedOnNonLeaf";
    /// The operation would take away a value of the RDN.
    NotAllowedOnRdn = 67, "notAllowedOnRDN";
    /// The entry exists already.
    EntryAlreadyExists = 68, "entryAlreadyExists";
    /// The structural object class may not change.
    ObjectClassModsProhibited = 69, "objectClassModsProhibited";
    /// The operation would touch several servers.
    AffectsMultipleDsas = 71, "affectsMultipleDSAs";
    /// The control of list views says why (draft-ietf-ldapext-ldapv3-vlv).
    ListViewError = 76, "virtualListViewError";
    /// Anything else.
    UnknownError = 80, "other";
    /// The operation was cancelled (RFC 3909).
    Canceled = 118, "canceled";
    /// There is no such operation to cancel (RFC 3909).
    NoSuchOperation = 119, "noSuchOperation";
    /// It is too late to cancel (RFC 3909).
    TooLate = 120, "tooLate";
    /// The operation cannot be cancelled (RFC 3909).
    CannotCancel = 121, "cannotCancel";
    /// The assertion control's filter is false (RFC 4528).
    AssertionFailed = 122, "assertionFailed";
    /// The proxied authorization was refused (RFC 4370).
    AuthorizationDenied = 123, "authorizationDenied";
    /// A content synchronisation must start over (RFC 4533).
    SyncRefreshRequired = 4096, "e-syncRefreshRequired";
    /// The update would have been made, and the client has asked for none (draft-zeilenga-ldap-noop).
    NoOperation = 16654, "noOperation";
}

impl ResultCode {
    /// Whether it is the ordinary end of an operation that was done: success, the two of compare, a SASL round.
    pub const fn is_success(self) -> bool {
        matches!(
            self,
            ResultCode::Success
                | ResultCode::CompareFalse
                | ResultCode::CompareTrue
                | ResultCode::SaslBindInProgress
        )
    }
}

impl std::fmt::Display for ResultCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}
