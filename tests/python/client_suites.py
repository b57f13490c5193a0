"""Runs the tests that python-ldap and ldap3 bring along against Sapwood, and says which fail that are not known to.

`cargo xtask clients` calls it with the program and a folder, where it keeps what pip fetches."""

import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# That of the operating system, which has python-ldap and pyasn1.
PYTHON = "/usr/bin/python3"

# Why tests fail, with the expressions that their names match. docs/protocol.md has them for people.
KNOWN = {
    "entries are told with the superclasses of their classes (RFC 4512 section 3.3)": [
        r"t_cext\..*\.test_add", r"t_edit\..*\.test_add_object", r"t_ldap_syncrepl\..*\.test_refresh(AndPersist_"
        r"(cancelled|poll_only|timeout)|Only_poll_full)", r"t_ldapobject\..*\.test00[12]_search_(subtree|onelevel)"],
    "names are told as they were written, not in small letters": [
        r"t_ldapobject\..*\.test006_sasl_(external_bind_s|options)", r"t_ldapobject\..*\.test101_reconnect_sasl_external"],
    "the root DSE has other attributes and another class than slapd's": [
        r"t_ldapobject\..*\.test_dse", r"t_cext\..*\.test_anon_rootdse_search"],
    "a wrong old password is invalidCredentials, not unwillingToPerform": [
        r"t_ldapobject\..*\.test_passwd_s", r"t_cext\..*\.test_passwd"],
    "an unknown type in a name is undefinedAttributeType, not invalidDNSyntax": [r"t_ldapobject\..*\.test_slapadd"],
    "LDAPv2 is not spoken": [r"t_cext\..*\.test_(invalid_credentials|simple_anonymous_bind)"],
    "a server that stops says unavailable, after which this version does not connect again": [
        r"t_ldapobject\..*\.test10(2_reconnect_simple_bind|5_reconnect_restore)"],
    "a compare of userPassword is one with the hash": [r"t_cext\..*\.test_compare"],
    "an authorization identity that is none is invalidCredentials (RFC 4513 section 5), not insufficientAccessRights": [
        r"t_ldap_sasl\..*\.test_external_ldapi"],
    "definitions have no DESC where the RFCs have none": [r"t_ldap_schema_subentry\..*\.test_urlfetch_ldapi?"],
    "no server is asked; Debian has another function": [r"t_ldap_dn\..*\.test_escape_dn_chars"],
    "a file of the test is not in the sdist": [r"test\.testAddOperation\..*\.test_add_binary"],
}

ENTRIES = """\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: ou=fixtures,dc=example,dc=com
objectClass: organizationalUnit
ou: fixtures

dn: ou=moved,dc=example,dc=com
objectClass: organizationalUnit
ou: moved
"""

# What tests of ldap3 find in eDirectory.
SCHEMA = """\
attributetype ( 2.25.15219639546802782511230095525404557135 NAME 'homeState' SUP name )
objectclass ( 2.25.304263013426371839827371821338693775266 NAME 'homeInfo' SUP top AUXILIARY MAY homeState )
"""


def fetch(folder, name, version):
    path = os.path.join(folder, f"{name}-{version}")
    if not os.path.isdir(path):
        subprocess.run(
            [PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder,
             f"{name}=={version}"], check=True)
        subprocess.run(["tar", "-xzf", path + ".tar.gz", "-C", folder], check=True)
    return path


def run(suite, tests, folder, environment):
    """Runs tests; whether all failures are known."""
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-m", "unittest", *tests], cwd=folder, env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    with open(folder + ".log", "w") as log:
        log.write(done.stdout)
    failed = re.findall(r"^(?:ERROR|FAIL): .*\((\S+)\)$", done.stdout, re.MULTILINE)
    count = re.search(r"^Ran (\d+) tests", done.stdout, re.MULTILINE)
    print(f"{suite}: {count and count.group(1)} tests, {len(failed)} of which fail ({folder}.log)")
    for reason, patterns in KNOWN.items():
        those = [name for name in failed if any(re.fullmatch(pattern, name) for pattern in patterns)]
        failed = [name for name in failed if name not in those]
        if those:
            print(f"  {len(those)}: {reason}")
    for name in failed:
        print(f"  not known: {name}")
    return count is not None and not failed


def python_ldap(sapwood, folder):
    path = fetch(folder, "python-ldap", "3.4.3")
    programs, temporary = os.path.join(folder, "bin"), os.path.join(folder, "tmp")
    for made in programs, temporary:
        shutil.rmtree(made, ignore_errors=True)
        os.mkdir(made)
    for name in "slapd", "slapadd":
        os.symlink(os.path.join(HERE, "slapd_stand_in.py"), os.path.join(programs, name))
    environment = {
        "SAPWOOD": sapwood, "BIN": f"{programs}:/usr/bin", "SBIN": programs, "SLAPD": os.path.join(programs, "slapd"),
        "TMP": temporary, "LOGLEVEL": "40",
    }
    return run("python-ldap", ["discover", "-s", "Tests", "-p", "t_*.py"], path, environment)


def ldap3(sapwood, folder):
    path = fetch(folder, "ldap3", "2.9.1")
    shutil.copy(os.path.join(HERE, "ldap3_config.py"), os.path.join(path, "test", "config.py"))
    open(os.path.join(path, "test", "__init__.py"), "w").close()
    directory, password = os.path.join(folder, "ldap3-directory"), os.path.join(folder, "password")
    shutil.rmtree(directory, ignore_errors=True)
    files = {"entries.ldif": ENTRIES, "home.schema": SCHEMA, "password": "secret\n"}
    for name, text in files.items():
        with open(os.open(os.path.join(folder, name), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(
        [sapwood, "init", directory, "--suffix", "dc=example,dc=com", "--admin-password-file", password, "--schema",
         "rfc2307bis", "--schema", os.path.join(folder, "home.schema")], **quiet)
    subprocess.run([sapwood, "import", directory, os.path.join(folder, "entries.ldif")], **quiet)
    listen = ["--listen", "ldap://127.0.0.1:0", "--listen", "ldaps://127.0.0.1:0"]
    with subprocess.Popen([sapwood, "serve", directory, *listen], stderr=subprocess.PIPE, text=True) as server:
        ports = {}
        while len(ports) < 2:
            scheme, port = re.search(r"listening on (ldaps?)://\S*:(\d+)", server.stderr.readline()).groups()
            ports[scheme] = port
        environment = {
            "LDAP_PORT": ports["ldap"], "LDAPS_PORT": ports["ldaps"], "LDAP_CA": os.path.join(directory, "tls-cert.pem")}
        modules = sorted(os.path.basename(name)[:-3] for name in glob.glob(os.path.join(path, "test", "test*.py")))
        # It asks ports 389 and 636.
        tests = [f"test.{name}" for name in modules if name != "testRestartable"]
        is_well = run("ldap3", tests, path, environment)
        server.terminate()
    return is_well


def main():
    sapwood, folder = map(os.path.abspath, sys.argv[1:])
    os.makedirs(folder, exist_ok=True)
    # Both, whatever comes of the first.
    are_well = [python_ldap(sapwood, folder), ldap3(sapwood, folder)]
    sys.exit(not all(are_well))


main()
