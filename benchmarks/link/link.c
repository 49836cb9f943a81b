/* A wire between two network namespaces: real TCP, with delay, rate, queue and loss.

   link NAMESPACE NAMESPACE DELAY_US BYTES_PER_S QUEUE_BYTES LOSS_PER_MILLION

   Opens the TUN device DEVICE in each namespace and carries packets from one to the other. A packet waits until those
   before it have passed at BYTES_PER_S (0: no limit), then DELAY_US longer. One that would wait behind more than
   QUEUE_BYTES (0: no limit) is dropped, and one of a million with LOSS_PER_MILLION. Each way has its own queue.
   Prints "ready" and runs until it is ended. Needs CAP_NET_ADMIN. Source of the method: tc-netem, which many kernels lack. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define DEVICE "wire0"
#define MOST_BYTES 9100 /* of a packet: MTU 9000 */
#define SLOTS 16384     /* packets under way */
#define AT_ONCE 64      /* packets of one way before the other has its turn */
#define SECOND_NS 1000000000ull

struct packet {
    uint64_t due_ns;
    int size;
    unsigned char data[MOST_BYTES];
};

struct way {
    int in, out;
    uint64_t free_ns; /* when the wire has passed all that was taken */
    unsigned head, tail;
    struct packet *ring;
};

static uint64_t delay_ns, bytes_per_s, queue_bytes, loss_per_million;
static uint64_t chance = 88172645463325252ull;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static int open_device(const char *namespace)
{
    char path[256];
    struct ifreq request;
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int space = open(path, O_RDONLY);
    if (space < 0 || setns(space, CLONE_NEWNET)) {
        perror(path);
        exit(1);
    }
    close(space);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    strncpy(request.ifr_name, DEVICE, IFNAMSIZ - 1);
    if (device < 0 || ioctl(device, TUNSETIFF, &request)) {
        perror("/dev/net/tun");
        exit(1);
    }
    return device;
}

static int is_lost(void)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance % 1000000 < loss_per_million;
}

static void take(struct way *way, uint64_t now)
{
    for (int i = 0; i < AT_ONCE; i++) {
        struct packet *packet = &way->ring[way->tail % SLOTS];
        if (way->tail - way->head == SLOTS) {
            return; /* the kernel's own queue holds the rest */
        }
        packet->size = (int)read(way->in, packet->data, MOST_BYTES);
        if (packet->size <= 0) {
            return;
        }
        uint64_t start = way->free_ns > now ? way->free_ns : now;
        uint64_t ahead = (start - now) * bytes_per_s / SECOND_NS;
        if (is_lost() || (queue_bytes && ahead + (uint64_t)packet->size > queue_bytes)) {
            continue;
        }
        way->free_ns = start + (bytes_per_s ? (uint64_t)packet->size * SECOND_NS / bytes_per_s : 0);
        packet->due_ns = way->free_ns + delay_ns;
        way->tail++;
    }
}

/* Pass on what is due; return when the next packet is, or `wake` if that is earlier. */
static uint64_t give(struct way *way, uint64_t wake)
{
    uint64_t now = now_ns();
    while (way->head != way->tail) {
        struct packet *packet = &way->ring[way->head % SLOTS];
        if (packet->due_ns > now) {
            return packet->due_ns < wake ? packet->due_ns : wake;
        }
        if (write(way->out, packet->data, (size_t)packet->size) < 0 && errno == EAGAIN) {
            return now;
        }
        way->head++;
    }
    return wake;
}

int main(int count, char **arguments)
{
    if (count != 7) {
        fprintf(stderr, "see the head of link.c for the arguments\n");
        return 2;
    }
    delay_ns = strtoull(arguments[3], NULL, 10) * 1000;
    bytes_per_s = strtoull(arguments[4], NULL, 10);
    queue_bytes = strtoull(arguments[5], NULL, 10);
    loss_per_million = strtoull(arguments[6], NULL, 10);
    int first = open_device(arguments[1]), second = open_device(arguments[2]);
    struct way ways[2] = {{.in = first, .out = second}, {.in = second, .out = first}};
    for (int i = 0; i < 2; i++) {
        ways[i].ring = malloc(sizeof(struct packet) * SLOTS);
        if (ways[i].ring == NULL) {
            perror("link");
            return 1;
        }
    }
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        uint64_t wake = now_ns() + SECOND_NS;
        for (int i = 0; i < 2; i++) {
            take(&ways[i], now_ns());
            wake = give(&ways[i], wake);
        }
        uint64_t now = now_ns(), left = wake > now ? wake - now : 0;
        struct timespec wait = {.tv_sec = (time_t)(left / SECOND_NS), .tv_nsec = (long)(left % SECOND_NS)};
        struct pollfd files[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
        ppoll(files, 2, &wait, NULL);
    }
}
