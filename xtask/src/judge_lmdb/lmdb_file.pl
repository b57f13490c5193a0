# What a program does with Perl's LMDB_File: values that are written to where they lie, several values of a key, and a hash.
use strict;
use warnings;
use LMDB_File qw(:flags :cursor_op :error);

mkdir 'folder';
my $large = '0123456789' x 100_000;
{
    my $env = LMDB::Env->new('folder');
    my $db = $env->BeginTxn->OpenDB;
    $db->put(A => $large);
    $db->Txn->commit;
    print join(' ', map { "$_ " . $env->info->{$_} } qw(mapaddr mapsize maxreaders numreaders)), "\n";
}
{
    my $env = LMDB::Env->new('folder', { flags => MDB_WRITEMAP });
    my $db = $env->BeginTxn->OpenDB;
    $db->ReadMode(1);
    $db->get('A', my $value);
    print "replaced ", ($value =~ tr/5/E/), "\n";
    substr($value, 20, 9) |= 'p' x 9;
    $db->Txn->commit;
    $db->Txn = $env->BeginTxn;
    $db->get('A', $value);
    print substr($value, 0, 40), " ", ($value =~ tr/E/E/), "\n";
    $value =~ s/9/\n/g;
    $db->Txn->commit;
    $db->Txn = $env->BeginTxn(MDB_RDONLY);
    $db->get('A', $value);
    print length $value, " ", ($value =~ tr/\n/\n/), "\n";
}
unlink glob 'folder/*';
{
    my $env = LMDB::Env->new('folder', { mapsize => 16 << 20, maxdbs => 2 });
    my $txn = $env->BeginTxn;
    my $db = $txn->OpenDB({ dbname => 'several', flags => MDB_CREATE | MDB_DUPSORT });
    for my $key ('a' .. 'e') {
        $db->put($key, $_) for 1 .. 9;
    }
    $txn->commit;
    $txn = $env->BeginTxn(MDB_RDONLY);
    my $cursor = $txn->OpenDB('several')->Cursor;
    my ($key, $value);
    for (1 .. 5) {
        $cursor->get($key, $value, MDB_NEXT_NODUP);
        $cursor->count(my $count);
        $cursor->get($key, $value, MDB_LAST_DUP);
        print "$key $value of $count\n";
        $cursor->get($key, $value, MDB_FIRST_DUP);
        print "$key $value\n";
    }
    eval { $cursor->get($key, $value, MDB_NEXT_NODUP) };
    print $@ =~ /NOTFOUND/ ? "the end\n" : "no end: $@\n";
}
{
    tie my %hash, 'LMDB_File', 'file' => { flags => MDB_NOSUBDIR, mapsize => 16 << 20 };
    $hash{"key$_"} = "value $_ " x 3 for 1 .. 500;
    my $count = 0;
    for my $key (keys %hash) {
        last if ++$count > 5000;
    }
    print "$count keys\n";
    delete @hash{ grep { /7/ } keys %hash };
    print scalar(keys %hash), " are left, key70: ", exists $hash{key70} ? 1 : 0, ", key1: ", $hash{key1}, "\n";
    untie %hash;
}
