/* Goes on as its own child over and over, in a session of its own and seen by nobody but root, for
   as many seconds as told. Holds a lock on the file it is told for as long as any of it lives. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **words) {
    time_t end;
    int held;
    if (count < 3 || (held = open(words[1], O_RDWR | O_CREAT, 0600)) < 0) return 1;
    end = time(NULL) + atoi(words[2]);
    if (flock(held, LOCK_EX)) return 1;
    if (fork() > 0) _exit(0);
    setsid();
    prctl(PR_SET_DUMPABLE, 0);
    close(0), close(1), close(2);
    while (time(NULL) < end)
        if (fork() > 0) _exit(0);
    return 0;
}
