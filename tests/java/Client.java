import java.util.Arrays;
import java.util.Hashtable;
import java.util.List;
import javax.naming.AuthenticationException;
import javax.naming.Context;
import javax.naming.NameAlreadyBoundException;
import javax.naming.NameNotFoundException;
import javax.naming.NamingEnumeration;
import javax.naming.NoPermissionException;
import javax.naming.directory.Attribute;
import javax.naming.directory.Attributes;
import javax.naming.directory.BasicAttribute;
import javax.naming.directory.BasicAttributes;
import javax.naming.directory.DirContext;
import javax.naming.directory.ModificationItem;
import javax.naming.directory.SearchControls;
import javax.naming.directory.SearchResult;
import javax.naming.ldap.Control;
import javax.naming.ldap.InitialLdapContext;
import javax.naming.ldap.LdapContext;
import javax.naming.ldap.PagedResultsControl;
import javax.naming.ldap.PagedResultsResponseControl;
import javax.naming.ldap.StartTlsRequest;
import javax.naming.ldap.StartTlsResponse;

/** What JNDI does with a directory: discovery, updates, searches, paging. */
public class Client {
    static String url;
    static boolean startTls;

    public static void main(String[] args) throws Exception {
        url = args[0];
        startTls = args[1].equals("yes");
        String admin = args[2], password = args[3], suffix = args[4], name = args[5];

        LdapContext context = connect(null, null);
        Attributes root = context.getAttributes("", new String[] {"namingContexts", "supportedLDAPVersion", "subschemaSubentry"});
        check(root.get("namingContexts").contains(suffix), root);
        check(root.get("supportedLDAPVersion").contains("3"), root);
        try {
            connect(admin, "wrong");
            throw new AssertionError("a wrong password was accepted");
        } catch (AuthenticationException expected) {
        }
        context.close();

        context = connect(admin, password);
        DirContext schema = context.getSchema(suffix);
        Attributes person = schema.getAttributes("ClassDefinition/inetOrgPerson");
        check(person.get("SUP").contains("organizationalPerson"), person);
        check(schema.getAttributes("AttributeDefinition/cn").get("NUMERICOID").contains("2.5.4.3"), "cn");

        String dn = "cn=" + name + "," + suffix;
        Attributes attributes = new BasicAttributes(true);
        attributes.put(new BasicAttribute("objectClass", "inetOrgPerson"));
        attributes.put("sn", "Müller");
        attributes.put("cn", name);
        attributes.put("mail", name + "@example.com");
        attributes.put("userPassword", "first");
        context.createSubcontext(dn, attributes).close();
        try {
            context.createSubcontext(dn, attributes);
            throw new AssertionError("added twice");
        } catch (NameAlreadyBoundException expected) {
        }

        SearchControls subtree = new SearchControls();
        subtree.setSearchScope(SearchControls.SUBTREE_SCOPE);
        NamingEnumeration<SearchResult> found = context.search(suffix, "(mail={0}*)", new Object[] {name + "@"}, subtree);
        SearchResult entry = found.next();
        check(entry.getNameInNamespace().equals(dn) && entry.getAttributes().get("sn").contains("Müller"), entry);
        check(!found.hasMore(), "one entry");

        context.modifyAttributes(dn, new ModificationItem[] {
            new ModificationItem(DirContext.ADD_ATTRIBUTE, new BasicAttribute("description", "one")),
            new ModificationItem(DirContext.REPLACE_ATTRIBUTE, new BasicAttribute("sn", "Meier")),
            new ModificationItem(DirContext.REMOVE_ATTRIBUTE, new BasicAttribute("mail")),
        });
        Attributes changed = context.getAttributes(dn, new String[] {"*", "entryUUID"});
        check(changed.get("sn").contains("Meier") && changed.get("mail") == null, changed);
        check(changed.get("entryUUID").get().toString().length() == 36, changed);

        LdapContext other = connect(dn, "first");
        try {
            other.destroySubcontext(dn);
            throw new AssertionError("deleted without being allowed to");
        } catch (NoPermissionException expected) {
        }
        other.close();

        String unit = "ou=" + name + "," + suffix;
        Attributes unitAttributes = new BasicAttributes("objectClass", "organizationalUnit", true);
        unitAttributes.put("ou", name);
        context.createSubcontext(unit, unitAttributes).close();
        for (int number = 0; number < 55; number++) {
            Attributes device = new BasicAttributes("objectClass", "device", true);
            device.put("cn", "" + number);
            context.createSubcontext("cn=" + number + "," + unit, device).close();
        }
        byte[] cookie = null;
        int entries = 0, pages = 0;
        do {
            context.setRequestControls(new Control[] {new PagedResultsControl(10, cookie, Control.CRITICAL)});
            SearchControls oneLevel = new SearchControls();
            oneLevel.setSearchScope(SearchControls.ONELEVEL_SCOPE);
            for (found = context.search(unit, "(objectClass=device)", oneLevel); found.hasMore(); found.next()) {
                entries++;
            }
            pages++;
            List<Control> controls = Arrays.asList(context.getResponseControls());
            cookie = ((PagedResultsResponseControl) controls.get(0)).getCookie();
        } while (cookie != null && cookie.length > 0);
        check(entries == 55 && pages == 6, entries + " entries in " + pages + " pages");
        context.setRequestControls(null);

        context.rename(dn, "cn=" + name + " renamed," + unit);
        try {
            context.getAttributes(dn);
            throw new AssertionError("still there");
        } catch (NameNotFoundException expected) {
        }
        context.destroySubcontext("cn=" + name + " renamed," + unit);
        context.close();
        System.out.println("all is well");
    }

    static LdapContext connect(String dn, String password) throws Exception {
        Hashtable<String, Object> environment = new Hashtable<>();
        environment.put(Context.INITIAL_CONTEXT_FACTORY, "com.sun.jndi.ldap.LdapCtxFactory");
        environment.put(Context.PROVIDER_URL, url);
        if (dn != null && !startTls) {
            environment.put(Context.SECURITY_PRINCIPAL, dn);
            environment.put(Context.SECURITY_CREDENTIALS, password);
        }
        LdapContext context = new InitialLdapContext(environment, null);
        if (startTls) {
            ((StartTlsResponse) context.extendedOperation(new StartTlsRequest())).negotiate();
            if (dn != null) {
                context.addToEnvironment(Context.SECURITY_AUTHENTICATION, "simple");
                context.addToEnvironment(Context.SECURITY_PRINCIPAL, dn);
                context.addToEnvironment(Context.SECURITY_CREDENTIALS, password);
                context.reconnect(null);
            }
        }
        return context;
    }

    static void check(boolean condition, Object about) {
        if (!condition) {
            throw new AssertionError(about);
        }
    }
}
