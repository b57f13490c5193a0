import java.util.ArrayList;
import java.util.Collections;
import java.util.Hashtable;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import javax.naming.Binding;
import javax.naming.CompositeName;
import javax.naming.Context;
import javax.naming.ContextNotEmptyException;
import javax.naming.NameAlreadyBoundException;
import javax.naming.NameClassPair;
import javax.naming.NameNotFoundException;
import javax.naming.NamingEnumeration;
import javax.naming.NamingException;
import javax.naming.RefAddr;
import javax.naming.Reference;
import javax.naming.ReferralException;
import javax.naming.SizeLimitExceededException;
import javax.naming.StringRefAddr;
import javax.naming.directory.Attributes;
import javax.naming.directory.BasicAttribute;
import javax.naming.directory.BasicAttributes;
import javax.naming.directory.DirContext;
import javax.naming.directory.InvalidAttributeIdentifierException;
import javax.naming.directory.SchemaViolationException;
import javax.naming.directory.SearchControls;
import javax.naming.directory.SearchResult;
import javax.naming.event.EventContext;
import javax.naming.event.EventDirContext;
import javax.naming.event.NamespaceChangeListener;
import javax.naming.event.NamingEvent;
import javax.naming.event.NamingExceptionEvent;
import javax.naming.event.ObjectChangeListener;
import javax.naming.ldap.Control;
import javax.naming.ldap.InitialLdapContext;
import javax.naming.ldap.LdapContext;
import javax.naming.ldap.SortControl;
import javax.naming.ldap.SortResponseControl;

/** What the programs of the JNDI tutorial do, trail by trail, with a tree like the one that they are written for. */
public class Tutorial {
    static String url, admin, password, suffix;

    public static void main(String[] args) throws Exception {
        url = args[0];
        admin = args[1];
        password = args[2];
        suffix = args[3];
        LdapContext context = connect(null);
        populate(context);
        naming(context);
        objects(context);
        attributes(context);
        searches(context);
        events();
        names(context);
        schema(context);
        controls(context);
        referrals(context);
        context.close();
        System.out.println("all is well");
    }

    /** Context of the suffix; what is in the environment besides. */
    static LdapContext connect(Hashtable<String, String> more) throws NamingException {
        Hashtable<String, Object> environment = new Hashtable<>();
        environment.put(Context.INITIAL_CONTEXT_FACTORY, "com.sun.jndi.ldap.LdapCtxFactory");
        environment.put(Context.PROVIDER_URL, url + "/" + suffix);
        environment.put(Context.SECURITY_AUTHENTICATION, "simple");
        environment.put(Context.SECURITY_PRINCIPAL, admin);
        environment.put(Context.SECURITY_CREDENTIALS, password);
        environment.put("com.sun.jndi.ldap.connect.pool", "true");
        if (more != null) {
            environment.putAll(more);
        }
        return new InitialLdapContext(environment, null);
    }

    static Attributes of(String... pairs) {
        Attributes attributes = new BasicAttributes(true);
        for (int at = 0; at < pairs.length; at += 2) {
            if (attributes.get(pairs[at]) == null) {
                attributes.put(new BasicAttribute(pairs[at]));
            }
            attributes.get(pairs[at]).add(pairs[at + 1]);
        }
        return attributes;
    }

    static void populate(LdapContext context) throws NamingException {
        context.createSubcontext("ou=People", of("objectClass", "organizationalUnit", "ou", "People")).close();
        String[][] people = {
            {"Ted Geisel", "Geisel", "+1 408 555 5252"}, {"Jon Ruiz", "Ruiz", "+1 408 555 1313"},
            {"Scott Seligman", "Seligman", "+1 408 555 5252"}, {"Samuel Clemens", "Clemens", "+1 408 555 0186"},
        };
        for (String[] person : people) {
            context.createSubcontext("cn=" + person[0] + ",ou=People", of(
                "objectClass", "inetOrgPerson", "cn", person[0], "sn", person[1], "telephoneNumber", person[2],
                "mail", person[1] + "@example.com")).close();
        }
    }

    /** Lookup, list, bindings, rename, subcontexts. */
    static void naming(LdapContext context) throws Exception {
        Object found = context.lookup("cn=Ted Geisel,ou=People");
        check(found instanceof LdapContext, found);
        List<String> names = new ArrayList<>();
        for (NameClassPair pair : Collections.list(context.list("ou=People"))) {
            names.add(pair.getName());
            check(pair.getClassName().equals("javax.naming.directory.DirContext"), pair);
        }
        check(names.size() == 4 && names.contains("cn=Jon Ruiz"), names);
        for (Binding binding : Collections.list(context.listBindings("ou=People"))) {
            check(binding.getObject() instanceof LdapContext, binding);
        }
        context.rename("cn=Scott Seligman,ou=People", "cn=Scott S,ou=People");
        expect(NameNotFoundException.class, () -> context.lookup("cn=Scott Seligman,ou=People"));
        context.rename("cn=Scott S,ou=People", "cn=Scott Seligman,ou=People");
        context.createSubcontext("ou=NewOu", of("objectClass", "organizationalUnit")).close();
        expect(NameAlreadyBoundException.class, () -> context.createSubcontext("ou=NewOu", of("objectClass", "organizationalUnit")));
        expect(ContextNotEmptyException.class, () -> context.destroySubcontext("ou=People"));
        context.destroySubcontext("ou=NewOu");
    }

    /** Java objects (RFC 2713): serialized, referenced, with attributes. */
    static void objects(LdapContext context) throws Exception {
        context.bind("cn=button", new ArrayList<>(List.of("a", "b")));
        check(context.lookup("cn=button").equals(List.of("a", "b")), "the object is read as it was written");
        expect(NameAlreadyBoundException.class, () -> context.bind("cn=button", "another"));
        context.rebind("cn=button", "another");
        check(context.lookup("cn=button").equals("another"), "the object is replaced");
        check(context.listBindings("").hasMore(), "objects are listed");
        Reference reference = new Reference("Fruit", new StringRefAddr("fruit", "orange"));
        context.rebind("cn=button", reference, of("description", "a fruit"));
        Object read = context.lookup("cn=button");
        RefAddr address = ((Reference) read).get("fruit");
        check(address.getContent().equals("orange"), read);
        check(context.getAttributes("cn=button").get("description").contains("a fruit"), "attributes come along");
        context.unbind("cn=button");
        expect(NameNotFoundException.class, () -> context.lookup("cn=button"));
        context.unbind("cn=button");
    }

    /** Attributes read, some of them, and changed. */
    static void attributes(LdapContext context) throws Exception {
        String name = "cn=Ted Geisel,ou=People";
        Attributes some = context.getAttributes(name, new String[] {"sn", "telephonenumber", "golfhandicap", "mail"});
        check(some.size() == 3 && some.get("SN").get().equals("Geisel"), some);
        context.modifyAttributes(name, DirContext.ADD_ATTRIBUTE, of("telephonenumber", "+1 555 555 5555"));
        context.modifyAttributes(name, DirContext.REPLACE_ATTRIBUTE, of("mail", "geisel@wizards.com"));
        context.modifyAttributes(name, DirContext.REMOVE_ATTRIBUTE, of("telephonenumber", "+1 555 555 5555"));
        Attributes all = context.getAttributes(name);
        check(all.get("mail").size() == 1 && all.get("telephoneNumber").size() == 1, all);
        expect(InvalidAttributeIdentifierException.class, () ->
            context.modifyAttributes(name, DirContext.ADD_ATTRIBUTE, of("nonsense", "x")));
        expect(SchemaViolationException.class, () ->
            context.modifyAttributes(name, DirContext.ADD_ATTRIBUTE, of("gidNumber", "1")));
    }

    /** Searches: by attributes, by filters, with scopes and limits, and a compare. */
    static void searches(LdapContext context) throws Exception {
        check(count(context.search("ou=People", of("mail", "geisel@wizards.com"))) == 1, "by attributes");
        NamingEnumeration<SearchResult> found =
            context.search("ou=People", of("sn", "Geisel"), new String[] {"sn", "mail"});
        check(found.next().getAttributes().size() == 2, "two attributes");
        SearchControls controls = new SearchControls();
        check(count(context.search("ou=People", "(&(sn=Geisel)(mail=*))", controls)) == 1, "by a filter");
        check(count(context.search("ou=People", "(telephoneNumber={0})", new Object[] {"+1 408 555 5252"}, controls)) == 2,
            "by a filter with a value");
        controls.setSearchScope(SearchControls.SUBTREE_SCOPE);
        check(count(context.search("", "(sn=*)", controls)) == 4, "in a subtree");
        controls.setReturningAttributes(new String[0]);
        controls.setSearchScope(SearchControls.OBJECT_SCOPE);
        check(count(context.search("cn=Ted Geisel,ou=People", "(sn=geisel)", controls)) == 1, "a compare");
        check(count(context.search("cn=Ted Geisel,ou=People", "(sn=x)", controls)) == 0, "a compare that is false");
        SearchControls limited = new SearchControls();
        limited.setCountLimit(1);
        limited.setTimeLimit(10000);
        expect(SizeLimitExceededException.class, () -> count(context.search("ou=People", "(sn=*)", limited)));
        SearchControls objects = new SearchControls();
        objects.setReturningObjFlag(true);
        check(context.search("ou=People", "(sn=Ruiz)", objects).next().getObject() instanceof LdapContext, "an object");
    }

    /** Events, by a persistent search. */
    static void events() throws Exception {
        LdapContext watching = connect(null), changing = connect(null);
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        class Listener implements NamespaceChangeListener, ObjectChangeListener {
            public void objectAdded(NamingEvent event) {
                seen.add("added " + event.getNewBinding().getName());
            }

            public void objectRemoved(NamingEvent event) {
                seen.add("removed " + event.getOldBinding().getName());
            }

            public void objectRenamed(NamingEvent event) {
                seen.add("renamed " + event.getNewBinding().getName());
            }

            public void objectChanged(NamingEvent event) {
                seen.add("changed " + event.getNewBinding().getName());
            }

            public void namingExceptionThrown(NamingExceptionEvent event) {
                seen.add(event.getException().toString());
            }
        }
        EventDirContext events = (EventDirContext) watching.lookup("ou=People");
        Listener listener = new Listener();
        events.addNamingListener("", EventContext.ONELEVEL_SCOPE, listener);
        // The search has begun when its first event comes: entries are added until then.
        String first = null;
        for (int number = 0; first == null; number++) {
            changing.createSubcontext("cn=Fuzzy" + number + ",ou=People", of("objectClass", "device")).close();
            first = seen.poll(100, java.util.concurrent.TimeUnit.MILLISECONDS);
        }
        String name = first.substring("added ".length());
        check(first.startsWith("added cn=Fuzzy"), first);
        // Each is waited for: changes that come close together are told as what they came to.
        changing.modifyAttributes(name + ",ou=People", DirContext.ADD_ATTRIBUTE, of("description", "x"));
        await(seen, "changed " + name);
        changing.rename(name + ",ou=People", "cn=Renamed,ou=People");
        await(seen, "renamed cn=Renamed");
        changing.destroySubcontext("cn=Renamed,ou=People");
        await(seen, "removed cn=Renamed");
        events.removeNamingListener(listener);
        for (NameClassPair pair : Collections.list(changing.list("ou=People"))) {
            if (pair.getName().startsWith("cn=Fuzzy")) {
                changing.destroySubcontext(pair.getName() + ",ou=People");
            }
        }
        watching.close();
        changing.close();
    }

    /** Waits for an event; entries may still be added meanwhile. */
    static void await(BlockingQueue<String> seen, String event) throws InterruptedException {
        String next = seen.take();
        while (next.startsWith("added")) {
            next = seen.take();
        }
        check(next.equals(event), next);
    }

    /** Names with special characters, full names, RDNs that stay, subtrees that move. */
    static void names(LdapContext context) throws Exception {
        String special = "cn=Sales\\, \\\"Smith\\\" \\+ Co\\\\ #1/2";
        javax.naming.Name name = new CompositeName().add(special);
        context.createSubcontext(name, of("objectClass", "device")).close();
        SearchControls controls = new SearchControls();
        SearchResult result = context.search("", "(cn=Sales, \"Smith\" + Co\\5c #1/2)", controls).next();
        check(result.getNameInNamespace().endsWith(suffix), result.getNameInNamespace());
        check(context.getAttributes(name).get("cn").contains("Sales, \"Smith\" + Co\\ #1/2"), "the name's value");
        context.destroySubcontext(name);
        Hashtable<String, String> keeps = new Hashtable<>();
        keeps.put("java.naming.ldap.deleteRDN", "false");
        LdapContext keeping = connect(keeps);
        keeping.rename("cn=Jon Ruiz,ou=People", "cn=John Ruiz,ou=People");
        check(keeping.getAttributes("cn=John Ruiz,ou=People").get("cn").size() == 2, "both names are there");
        keeping.close();
        context.rename("cn=John Ruiz,ou=People", "cn=Jon Ruiz,ou=People");
        context.rename("ou=People", "ou=Folk");
        check(context.getAttributes("cn=Ted Geisel,ou=Folk").get("sn") != null, "a tree was renamed");
        context.rename("ou=Folk", "ou=People");
    }

    /** The schema read as a tree, and added to. */
    static void schema(LdapContext context) throws Exception {
        DirContext schema = context.getSchema("");
        check(schema.getAttributes("AttributeDefinition/telephoneNumber").get("SYNTAX")
            .contains("1.3.6.1.4.1.1466.115.121.1.50"), "a type");
        DirContext classes = context.getSchemaClassDefinition("cn=Ted Geisel,ou=People");
        List<String> names = new ArrayList<>();
        for (NameClassPair pair : Collections.list(classes.list(""))) {
            names.add(pair.getName());
        }
        check(names.contains("inetOrgPerson"), names);
        Attributes definition = of(
            "NUMERICOID", "1.3.6.1.4.1.42.2.27.4.2.3.1.1.1", "NAME", "fooObjectClass", "DESC", "for a test", "SUP", "top",
            "STRUCTURAL", "true");
        BasicAttribute must = new BasicAttribute("MUST", "cn");
        must.add("objectClass");
        definition.put(must);
        schema.createSubcontext("ClassDefinition/fooObjectClass", definition).close();
        context.createSubcontext("cn=foo", of("objectClass", "fooObjectClass")).close();
        context.destroySubcontext("cn=foo");
        schema.destroySubcontext("ClassDefinition/fooObjectClass");
    }

    /** Sorting. */
    static void controls(LdapContext context) throws Exception {
        context.setRequestControls(new Control[] {new SortControl("sn", Control.CRITICAL)});
        List<String> sorted = new ArrayList<>();
        NamingEnumeration<SearchResult> found = context.search("ou=People", "(sn=*)", new SearchControls());
        while (found.hasMore()) {
            sorted.add(found.next().getAttributes().get("sn").get().toString());
        }
        check(sorted.equals(List.of("Clemens", "Geisel", "Ruiz", "Seligman")), sorted);
        SortResponseControl answer = (SortResponseControl) context.getResponseControls()[0];
        check(answer.isSorted(), "sorted");
        context.setRequestControls(null);
    }

    /** Referral objects: managed, followed, thrown, ignored. */
    static void referrals(LdapContext context) throws Exception {
        Hashtable<String, String> environment = new Hashtable<>();
        environment.put(Context.REFERRAL, "ignore");
        LdapContext manager = connect(environment);
        String target = url + "/ou=People," + suffix.replace(" ", "%20");
        manager.createSubcontext("ou=elsewhere", of(
            "objectClass", "referral", "objectClass", "extensibleObject", "ou", "elsewhere", "ref", target)).close();
        SearchControls subtree = new SearchControls();
        subtree.setSearchScope(SearchControls.SUBTREE_SCOPE);
        // Who ignores referrals asks for referral objects as entries (ManageDsaIT).
        check(count(manager.search("", "(objectClass=referral)", subtree)) == 1, "a referral object");
        environment.put(Context.REFERRAL, "follow");
        LdapContext following = connect(environment);
        check(count(following.search("", "(sn=Geisel)", subtree)) == 2, "found twice, once by the referral");
        check(following.getAttributes("cn=Ted Geisel,ou=elsewhere").get("sn").contains("Geisel"), "followed");
        following.close();
        environment.put(Context.REFERRAL, "throw");
        LdapContext throwing = connect(environment);
        try {
            throwing.getAttributes("cn=Ted Geisel,ou=elsewhere");
            check(false, "the referral is thrown");
        } catch (ReferralException referral) {
            DirContext other = (DirContext) referral.getReferralContext();
            check(other.getAttributes("").get("sn").contains("Geisel"), referral.getReferralInfo());
        }
        throwing.close();
        manager.destroySubcontext("ou=elsewhere");
        manager.close();
    }

    interface Step {
        void run() throws Exception;
    }

    static void expect(Class<? extends Exception> kind, Step step) throws Exception {
        try {
            step.run();
        } catch (Exception thrown) {
            if (kind.isInstance(thrown)) {
                return;
            }
            throw thrown;
        }
        throw new AssertionError(kind + " was expected");
    }

    static int count(NamingEnumeration<?> found) throws NamingException {
        int count = 0;
        while (found.hasMore()) {
            found.next();
            count++;
        }
        return count;
    }

    static void check(boolean condition, Object about) {
        if (!condition) {
            throw new AssertionError(about);
        }
    }
}
