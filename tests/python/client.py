"""What python-ldap does with a directory: discovery, updates, searches, paging, passwords."""

import sys

import ldap
import ldap.controls
import ldap.modlist
import ldap.schema
from ldap.controls.libldap import SimplePagedResultsControl

url, start_tls, admin, password, suffix, name, certificate = sys.argv[1:]
ldap.set_option(ldap.OPT_X_TLS_CACERTFILE, certificate)


def connect():
    connection = ldap.initialize(url, bytes_strictness="error")
    connection.protocol_version = 3
    if start_tls == "yes":
        connection.start_tls_s()
    return connection


connection = connect()

# Discovery.
root = connection.read_rootdse_s(attrlist=["*", "+"])
assert suffix.encode() in root["namingContexts"], root
assert b"3" in root["supportedLDAPVersion"]
assert b"1.2.840.113556.1.4.319" in root["supportedControl"]

try:
    connection.simple_bind_s(admin, "wrong")
    raise AssertionError("a wrong password was accepted")
except ldap.INVALID_CREDENTIALS:
    pass
connection.simple_bind_s(admin, password)
assert connection.whoami_s() == "dn:" + admin

subschema = connection.search_subschemasubentry_s(suffix)
schema = ldap.schema.SubSchema(connection.read_subschemasubentry_s(subschema))
person = schema.get_obj(ldap.schema.ObjectClass, "inetOrgPerson")
assert person is not None and "organizationalPerson" in person.sup
assert schema.get_obj(ldap.schema.AttributeType, "cn").names[0] in ("cn", "commonName")

# Updates.
dn = f"cn={name},{suffix}"
attributes = {
    "objectClass": [b"inetOrgPerson"],
    "cn": [name.encode()],
    "sn": ["Müller".encode()],
    "mail": [f"{name}@example.com".encode()],
    "userPassword": [b"first"],
    "jpegPhoto": [bytes(range(256)) * 100],
}
connection.add_s(dn, ldap.modlist.addModlist(attributes))
try:
    connection.add_s(dn, ldap.modlist.addModlist(attributes))
    raise AssertionError("added twice")
except ldap.ALREADY_EXISTS:
    pass
((found, entry),) = connection.search_s(suffix, ldap.SCOPE_SUBTREE, f"(mail={name}@*)")
assert found == dn and entry["sn"] == ["Müller".encode()] and entry["jpegPhoto"] == attributes["jpegPhoto"]
assert entry["userPassword"][0].startswith(b"{ARGON2}")
connection.modify_s(dn, [(ldap.MOD_ADD, "description", [b"one", b"two"]), (ldap.MOD_DELETE, "mail", None)])
((_, entry),) = connection.search_s(dn, ldap.SCOPE_BASE, "(objectClass=*)", ["description", "mail", "entryUUID"])
assert sorted(entry["description"]) == [b"one", b"two"] and "mail" not in entry and len(entry["entryUUID"][0]) == 36
try:
    connection.modify_s(dn, [(ldap.MOD_ADD, "nonsense", [b"x"])])
    raise AssertionError("an unknown attribute was accepted")
except ldap.UNDEFINED_TYPE:
    pass
assert connection.compare_s(dn, "sn", "MÜLLER".encode())
assert not connection.compare_s(dn, "sn", b"Meier")

# Passwords.
other = connect()
other.simple_bind_s(dn, "first")
other.passwd_s(dn, "first", "second")
other.simple_bind_s(dn, "second")
_, answer = other.passwd_s(None, None, None, extract_newpw=True)
other.simple_bind_s(dn, answer.genPasswd.decode())
try:
    other.delete_s(dn)
    raise AssertionError("deleted without being allowed to")
except ldap.INSUFFICIENT_ACCESS:
    pass
other.unbind_s()

# Paging.
unit = f"ou={name},{suffix}"
connection.add_s(unit, [("objectClass", [b"organizationalUnit"]), ("ou", [name.encode()])])
pending = [
    connection.add(f"cn={number},{unit}", [("objectClass", [b"device"]), ("cn", [str(number).encode()])])
    for number in range(250)
]
for message in pending:
    connection.result(message)
control = SimplePagedResultsControl(True, size=40, cookie="")
names, pages = set(), 0
while True:
    message = connection.search_ext(unit, ldap.SCOPE_ONELEVEL, "(objectClass=device)", ["1.1"], serverctrls=[control])
    _, entries, _, controls = connection.result3(message)
    names.update(dn for dn, _ in entries)
    pages += 1
    (answer,) = [answer for answer in controls if answer.controlType == SimplePagedResultsControl.controlType]
    if not answer.cookie:
        break
    control.cookie = answer.cookie
assert len(names) == 250 and pages == 7, (len(names), pages)
try:
    connection.search_ext_s(unit, ldap.SCOPE_ONELEVEL, sizelimit=10)
    raise AssertionError("no size limit")
except ldap.SIZELIMIT_EXCEEDED:
    pass

# Renaming.
connection.rename_s(unit, f"ou={name} renamed", delold=1)
assert len(connection.search_s(f"ou={name} renamed,{suffix}", ldap.SCOPE_ONELEVEL, attrlist=["1.1"])) == 250
connection.delete_s(dn)
assert connection.search_s(suffix, ldap.SCOPE_SUBTREE, f"(cn={name})") == []
connection.unbind_s()
print("all is well")
